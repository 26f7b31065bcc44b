#include "cluster.hpp"

#include <algorithm>
#include <string>

namespace msa_ops::emulator {
namespace {

constexpr std::uint64_t kTurn = 256;       // instructions before the next warp runs
// Rounds without a change before a look at whether any can come, and before waits that may end without success do.
constexpr unsigned kQuietRounds = 4, kQuietRoundsOfWaits = 32;
// Instructions of the cluster, after which a wait ends without success, and lanes that wait for others of their warp go on.
constexpr std::uint64_t kLongWait = 1U << 22, kLongApart = 1U << 24;
constexpr unsigned kPatience = 256;        // rounds in which asynchronous work may stay away although warps run on

}  // namespace

WorkList::WorkList(const LaunchShape& shape) : shape_(shape) {
  for (unsigned i = 0; i < 3; ++i) {
    clusters_[i] = shape.grid[i] / shape.cluster[i];
    count_ *= clusters_[i];
  }
}

bool WorkList::take(std::array<unsigned, 3>& first_block) {
  if (next_ >= count_) return false;
  const std::uint64_t number = next_++;
  if (number >= count_) return false;
  first_block = {static_cast<unsigned>(number % clusters_[0]) * shape_.cluster[0],
                 static_cast<unsigned>(number / clusters_[0] % clusters_[1]) * shape_.cluster[1],
                 static_cast<unsigned>(number / clusters_[0] / clusters_[1]) * shape_.cluster[2]};
  return true;
}

Cluster::Cluster(const Program& program, const LaunchShape& shape, const Chip& chip, const GlobalMemory& global,
                 const RunOptions& options, WorkList& work, GlobalOrder* order, unsigned device,
                 Progress::Worker& progress)
    : program_(program),
      shape_(shape),
      chip_(chip),
      work_(work),
      ordering_(shape.cluster_blocks() * ((shape.threads() + program.warp_size() - 1) / program.warp_size())),
      watch_(order, ordering_),
      device_(device),
      progress_(progress),
      random_(options.seed.has_value()),
      sum_order_(options.sum_order),
      generator_(options.seed.value_or(0)),
      failures_(static_cast<std::minstd_rand::result_type>(options.seed.value_or(0) + 1)) {
  for (unsigned rank = 0; rank < shape.cluster_blocks(); ++rank) {
    blocks_.push_back(std::make_unique<ThreadBlock>(program, shape, global, *this, rank));
  }
}

void Cluster::start(std::array<unsigned, 3> first_block) {
  first_ = first_block;
  watch_.start({&program_, device_, first_block, shape_.cluster, blocks_[0]->num_warps(), &shape_});
  ordering_.reset(watch_.number());
  async_.reset();
  live_warps_ = 0;
  for (unsigned rank = 0; rank < size(); ++rank) live_warps_ += blocks_[rank]->num_warps();
  barrier_.reset(live_warps_, ordering_);
  for (unsigned rank = 0; rank < size(); ++rank) {
    const auto& shape = shape_.cluster;
    blocks_[rank]->start({first_block[0] + rank % shape[0], first_block[1] + rank / shape[0] % shape[1],
                          first_block[2] + rank / shape[0] / shape[1]});
  }
  rounds_without_work_ = 0;
  quiet_rounds_ = 0;
  rests_at_ = kNever;
  note_change();
}

bool Cluster::run_warp(ThreadBlock& block, unsigned warp, std::uint64_t& left, std::uint64_t& budget) {
  WarpProgram& program = block.warp(warp);
  ordering_.set_current(block.actor_warp(warp), program.pc());
  block.begin_turn(warp);
  std::uint64_t turn = kTurn;
  if (random_) {
    // Mostly short turns, now and then a long one.
    turn = std::uint64_t{1} << generator_() % 10;
    if (!async_.empty() && generator_() % 4 == 0 && async_.finish_one(&generator_)) note_change();
  }
  std::uint64_t executed = 0;
  const WarpProgram::State state = program.run(std::min(turn, budget), executed);
  budget -= executed;
  executed_ += executed;
  left -= std::min(left, executed);
  if (state != WarpProgram::State::kYielded) all_yield_ = false;
  if (state == WarpProgram::State::kDone) {
    --live_warps_;
    try {
      block.end(warp);
      if (block.ended()) {
        async_.finish_of(&block);
        note_change();
        check_remote_uses(block);
        block.tensor_memory().finish();
      }
    } catch (const Violation& violation) {
      throw Fault(violation, program.place());
    }
  } else if (budget == 0) {
    throw Fault({FaultKind::kLimit, "the launch took more instructions than max_instructions allows; does this warp spin?"},
                program.place());
  }
  return executed > 0 || state == WarpProgram::State::kDone || state == WarpProgram::State::kYielded;
}

void Cluster::check_remote_uses(ThreadBlock& block) {
  const auto use = block.shared().remote_use().unknown();
  if (!use) return;
  const unsigned warps = block.num_warps();
  const std::string message = "nothing orders this use of shared memory of block " + std::to_string(block.rank()) +
                              " of the cluster before the end of that block";
  throw Fault({FaultKind::kExited, message},
              program_.place_of(use->pc, blocks_[use->warp / warps]->index(), static_cast<int>(use->warp % warps)));
}

bool Cluster::round(std::uint64_t& left, std::uint64_t& budget) {
  bool progress = false;
  const unsigned warps = blocks_[0]->num_warps();
  const unsigned all = warps * size();
  const unsigned first = random_ ? static_cast<unsigned>(generator_() % all) : 0;
  const unsigned step = random_ && generator_() % 2 == 0 ? all - 1 : 1;
  for (unsigned i = 0, at = first; i < all; ++i, at = (at + step) % all) {
    ThreadBlock& block = *blocks_[at / warps];
    if (block.can_run(at % warps) && run_warp(block, at % warps, left, budget)) progress = true;
  }
  return progress;
}

bool Cluster::run(std::uint64_t instructions, std::uint64_t& budget) {
  if (rests_at_ != kNever && rests_at_ == progress_.total()) return false;
  std::uint64_t left = instructions;
  while (live_warps_ > 0 && left > 0) {
    if (ordering_.crowded()) forget_old_accesses();
    if (elapsed() >= next_look_) end_long_waits();
    all_yield_ = true;
    if (round(left, budget)) {
      if (all_yield_) break;  // they wait for other clusters
      if (!async_.empty() && ++rounds_without_work_ >= kPatience) {
        finish_work();
      }
      if (rests_after_round()) {
        rested_ += left;
        break;
      }
      continue;
    }
    if (live_warps_ == 0) break;
    rounds_without_work_ = 0;
    if (async_.finish_one(random_ ? &generator_ : nullptr)) {
      note_change();
      continue;
    }
    if (rests_without_work()) {
      rested_ += left;
      break;
    }
  }
  if (live_warps_ > 0) return false;
  async_.finish_all();
  note_change();
  return true;
}

void Cluster::finish_work() {
  rounds_without_work_ = 0;
  async_.finish_one(random_ ? &generator_ : nullptr);
  note_change();
}

// Some warp runs, but it may only do the same again and again.
bool Cluster::rests_after_round() {
  if (changes_ != changes_before_) {
    changes_before_ = changes_;
    quiet_rounds_ = 0;
    return false;
  }
  if (++quiet_rounds_ % kQuietRounds != 0) return false;
  const bool is_long = quiet_rounds_ >= kQuietRoundsOfWaits;
  if (is_long) quiet_rounds_ = 0;
  bool may_end = false;
  const Changes now = changes();
  const Rest known = rest_of_warps(now, may_end);
  if (!async_.empty()) {
    if (known != Rest::kNone || may_end) finish_work();
    return false;
  }
  if (known != Rest::kNone) return rest(known, now.launch);
  if (may_end && is_long) end_waits(elapsed());
  return false;
}

// Waits that may end without success do so first, since what comes after them may change something.
bool Cluster::rests_without_work() {
  bool may_end = false;
  const Changes now = changes();
  const Rest known = rest_of_warps(now, may_end);
  if (known != Rest::kNone) return rest(known, now.launch);
  if (may_end) end_waits(elapsed());
  return false;
}

Rest Cluster::rest_of_warps(const Changes& now, bool& may_end) const {
  Rest all = Rest::kInCluster;
  bool some_run = false;
  for (const auto& block : blocks_) {
    for (unsigned warp = 0; warp < block->num_warps(); ++warp) {
      if (block->done(warp)) continue;
      const Rest one = block->warp(warp).rest(now);
      if (one == Rest::kInLaunch) all = one;
      if (one != Rest::kNone) continue;
      if (block->may_time_out(warp)) may_end = true;
      else if (block->can_run(warp)) some_run = true;
    }
  }
  if (some_run) may_end = false;
  return some_run || may_end ? Rest::kNone : all;
}

bool Cluster::rest(Rest known, std::uint64_t total) {
  if (known == Rest::kInCluster) {
    if (release_lanes(elapsed())) return false;
    report_deadlock();
  }
  if (progress_.may_rest()) rests_at_ = total;
  else end_waits(elapsed());
  return true;
}

void Cluster::end_waits(std::uint64_t last) {
  for (const auto& block : blocks_) {
    for (unsigned warp = 0; warp < block->num_warps(); ++warp) {
      if (block->may_time_out(warp) && block->waits_since(warp) <= last) block->time_out(warp);
    }
  }
}

bool Cluster::release_lanes(std::uint64_t last) {
  bool some = false;
  for (const auto& block : blocks_) {
    for (unsigned warp = 0; warp < block->num_warps(); ++warp) {
      if (!block->done(warp) && block->warp(warp).release_lanes(last)) some = true;
    }
  }
  if (some) {
    has_lanes_apart_ = true;
    note_change();
  }
  return some;
}

// Time passes for those that wait, whatever others do.
void Cluster::end_long_waits() {
  next_look_ = elapsed() + kLongWait;
  if (elapsed() >= kLongWait) end_waits(elapsed() - kLongWait);
  if (elapsed() >= kLongApart) release_lanes(elapsed() - kLongApart);
}

void Cluster::describe(std::string& text, Place& place, unsigned& most, const std::string& who, bool names_block) const {
  const Changes now = changes();
  Place waiting;
  for (const auto& block : blocks_) {
    for (unsigned i = 0; i < block->num_warps(); ++i) {
      if (block->done(i)) continue;
      if (most == 0) return;
      --most;
      const WarpProgram& warp = block->warp(i);
      text += "; " + who;
      const auto& at = block->index();
      if (names_block) {
        text += "block (" + std::to_string(at[0]) + ", " + std::to_string(at[1]) + ", " + std::to_string(at[2]) + ") ";
      } else if (size() > 1) {
        text += "block " + std::to_string(block->rank()) + " ";
      }
      text += "warp " + std::to_string(i) + " ";
      const std::string loop = block->waits(i) ? "" : warp.describe_loop(now);
      if (loop.empty()) {
        text += "at " + warp.place().where() + " waits for " + block->describe_wait(i);
        if (waiting.line == 0) waiting = warp.place();
      } else {
        text += loop;
        if (place.line == 0) place = warp.place_of_loop(now);
      }
    }
  }
  if (place.line == 0) place = waiting;
}

void Cluster::report_deadlock() const {
  std::string message = size() == 1 ? "no warp of the block can go on" : "no warp of the cluster can go on";
  Place first;
  unsigned most = UINT32_MAX;
  describe(message, first, most, "", false);
  throw Fault({FaultKind::kDeadlock, message}, first);
}

void Cluster::forget_old_accesses() {
  std::vector<AccessId> live(ordering_.num_records(), 0);
  for (const auto& block : blocks_) {
    block->shared().collect(live);
    block->tensor_memory().collect(live);
  }
  ordering_.compact(live);
  for (const auto& block : blocks_) {
    block->shared().replace(live);
    block->tensor_memory().replace(live);
  }
}

void Cluster::add_to(Counters& counters) const {
  for (const auto& block : blocks_) block->add_to(counters);
}

}  // namespace msa_ops::emulator

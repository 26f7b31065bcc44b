#include "cluster.hpp"

#include <algorithm>
#include <string>

namespace msa_ops::emulator {
namespace {

constexpr std::uint64_t kTurn = 256;       // instructions before the next warp runs
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
                 const RunOptions& options, WorkList& work, GlobalOrder* order, unsigned device)
    : program_(program),
      shape_(shape),
      chip_(chip),
      work_(work),
      ordering_(shape.cluster_blocks() * ((shape.threads() + program.warp_size() - 1) / program.warp_size())),
      watch_(order, ordering_),
      device_(device),
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
  watch_.start({&program_, device_, first_block, shape_.cluster, blocks_[0]->num_warps()});
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
  time_outs_ = 0;
  rounds_without_work_ = 0;
}

bool Cluster::run_warp(ThreadBlock& block, unsigned warp, std::uint64_t& left, std::uint64_t& budget) {
  WarpProgram& program = block.warp(warp);
  ordering_.set_current(block.actor_warp(warp), program.pc());
  block.begin_turn(warp);
  std::uint64_t turn = kTurn;
  if (random_) {
    // Mostly short turns, now and then a long one.
    turn = std::uint64_t{1} << generator_() % 10;
    if (!async_.empty() && generator_() % 4 == 0) async_.finish_one(&generator_);
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
        check_remote_uses(block);
        block.tensor_memory().finish();
      }
    } catch (const Violation& violation) {
      throw Fault(violation, program.place());
    }
  } else if (budget == 0) {
    throw Fault({FaultKind::kLimit, "the launch took more instructions than it may; does this warp spin?"},
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
  std::uint64_t left = instructions;
  while (live_warps_ > 0 && left > 0) {
    if (ordering_.crowded()) forget_old_accesses();
    all_yield_ = true;
    if (round(left, budget)) {
      if (all_yield_) break;  // they wait for other clusters
      if (!async_.empty() && ++rounds_without_work_ >= kPatience) {
        rounds_without_work_ = 0;
        async_.finish_one(nullptr);
      }
      continue;
    }
    if (live_warps_ == 0) break;
    rounds_without_work_ = 0;
    if (async_.finish_one(random_ ? &generator_ : nullptr)) {
      time_outs_ = 0;
      continue;
    }
    time_out();
  }
  if (live_warps_ > 0) return false;
  async_.finish_all();
  return true;
}

// Waiting on an mbarrier may end without success. A warp that then only comes back to wait again is in a deadlock.
void Cluster::time_out() {
  if (time_outs_ > 0 && events_ == events_at_time_out_ && time_outs_ >= 2) report_deadlock();
  time_outs_ = events_ == events_at_time_out_ ? time_outs_ + 1 : 1;
  events_at_time_out_ = events_;
  bool some = false;
  for (const auto& block : blocks_) {
    for (unsigned warp = 0; warp < block->num_warps(); ++warp) {
      if (!block->may_time_out(warp)) continue;
      some = true;
    }
  }
  if (!some || time_outs_ > 2) report_deadlock();
  for (const auto& block : blocks_) {
    for (unsigned warp = 0; warp < block->num_warps(); ++warp) {
      if (block->may_time_out(warp)) block->time_out(warp);
    }
  }
}

void Cluster::report_deadlock() const {
  std::string message = size() == 1 ? "no warp of the block can go on" : "no warp of the cluster can go on";
  Place first;
  for (const auto& block : blocks_) {
    for (unsigned i = 0; i < block->num_warps(); ++i) {
      if (block->done(i)) continue;
      const Place place = block->warp(i).place();
      if (first.line == 0) first = place;
      message += "; ";
      if (size() > 1) message += "block " + std::to_string(block->rank()) + " ";
      message += "warp " + std::to_string(i) + " at " + place.where() + " waits for " +
                 block->describe_wait(i);
    }
  }
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

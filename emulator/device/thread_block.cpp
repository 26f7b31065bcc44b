#include "thread_block.hpp"

#include <algorithm>

#include "cluster.hpp"

namespace msa_ops::emulator {

ThreadBlock::ThreadBlock(const Program& program, const LaunchShape& shape, const GlobalMemory& global,
                         Cluster& cluster, unsigned rank)
    : program_(program),
      shape_(shape),
      global_(global),
      cluster_(cluster),
      rank_(rank),
      shared_(program.shared_base() + (static_cast<std::uint64_t>(rank) << program.rank_shift()),
              program.static_shared_memory() + shape.dynamic_shared_memory, cluster.ordering(), program),
      tensor_memory_(cluster.chip().tensor_memory_columns, cluster.ordering(), program),
      mbarriers_(shared_, cluster.ordering()) {
  const unsigned threads = shape.threads();
  const unsigned size = program.warp_size();
  for (unsigned first = 0; first < threads; first += size) {
    warps_.push_back(program.make_warp(*this, first / size, std::min(size, threads - first)));
  }
}

void ThreadBlock::start(std::array<unsigned, 3> index) {
  index_ = index;
  early_ = global_.has_pending();
  shared_.forget();
  tensor_memory_.start();
  mbarriers_.reset();
  shared_.remote_use().start(cluster_.ordering(), actor_warp(0), num_warps());
  register_pool_.start(num_warps(), program_.registers_a_thread());
  barriers_.reset(num_warps(), cluster_.ordering(), actor_warp(0));
  waits_.assign(num_warps(), {});
  live_ = num_warps();
  for (const auto& warp : warps_) warp->start();
}

ThreadBlock& ThreadBlock::holder(std::uint64_t address, int lane) {
  const std::uint64_t rank = address >> program_.rank_shift();
  if (rank == rank_) return *this;
  if (rank >= cluster_.size()) {
    throw Violation{FaultKind::kOutOfBounds,
                    "shared memory of block " + std::to_string(rank) + " of a cluster of " +
                        std::to_string(cluster_.size()),
                    lane, address};
  }
  ThreadBlock& found = cluster_.block(static_cast<unsigned>(rank));
  if (found.ended()) {
    throw Violation{FaultKind::kExited,
                    "shared memory of block " + std::to_string(rank) + " of the cluster, which has ended", lane,
                    address};
  }
  if (!cluster_.ordering().knows_start_of(found.actor_warp(0), found.num_warps())) {
    throw Violation{FaultKind::kRace,
                    "use of shared memory of block " + std::to_string(rank) +
                        " of the cluster, of which nothing says that it runs already (a barrier.cluster is missing)",
                    lane, address};
  }
  return found;
}

void ThreadBlock::begin_wait(unsigned warp, Wait::Kind kind, const Mbarrier* barrier, std::uint64_t phase) {
  waits_[warp] = {kind, barrier, phase, cluster_.elapsed(), 0, false, false};
}

void ThreadBlock::wait_for(unsigned warp, const Mbarrier& barrier) {
  begin_wait(warp, Wait::Kind::kMbarrier, &barrier, barrier.phase);
}

void ThreadBlock::wait_for_cluster(unsigned warp) { begin_wait(warp, Wait::Kind::kCluster); }

void ThreadBlock::wait_for_registers(unsigned warp, unsigned count) {
  begin_wait(warp, Wait::Kind::kRegisters, nullptr, count);
}

void ThreadBlock::poll(unsigned warp, bool still) {
  const std::uint64_t since = waits_[warp].since;
  begin_wait(warp, Wait::Kind::kPoll);
  if (still) waits_[warp].since = since;
}

bool ThreadBlock::timed_out(unsigned warp, std::uint64_t lanes) {
  std::uint64_t& all = waits_[warp].timed_out;
  const bool result = (all & lanes) != 0;
  all &= ~lanes;
  return result;
}

bool ThreadBlock::can_run(unsigned warp) const {
  Wait& wait = waits_[warp];
  if (wait.is_done || barriers_.waiting(warp)) return false;
  switch (wait.kind) {
    case Wait::Kind::kNone: return true;
    case Wait::Kind::kPoll: return true;
    case Wait::Kind::kMbarrier:
      if (wait.barrier->phase == wait.phase) return false;
      break;
    case Wait::Kind::kCluster:
      if (!cluster_.barrier().open(actor_warp(warp))) return false;
      break;
    case Wait::Kind::kRegisters:
      if (!register_pool_.has(warp, static_cast<unsigned>(wait.phase))) return false;
      break;
  }
  wait.kind = Wait::Kind::kNone;
  return true;
}

bool ThreadBlock::may_time_out(unsigned warp) const {
  const Wait& wait = waits_[warp];
  return !wait.is_done && !barriers_.waiting(warp) &&
         (wait.kind == Wait::Kind::kMbarrier || wait.kind == Wait::Kind::kPoll);
}

void ThreadBlock::time_out(unsigned warp) {
  waits_[warp].kind = Wait::Kind::kNone;
  waits_[warp].timed_out = UINT64_MAX;
  warps_[warp]->note_time_out();
}

void ThreadBlock::end(unsigned warp) {
  waits_[warp].is_done = true;
  --live_;
  barriers_.exit();
  register_pool_.exit(warp);
  cluster_.barrier().exit(actor_warp(warp));
  cluster_.note_change();
}

std::string ThreadBlock::describe_wait(unsigned warp) const {
  if (barriers_.waiting(warp)) return barriers_.describe(warp);
  switch (waits_[warp].kind) {
    case Wait::Kind::kMbarrier: return mbarriers_.describe(*waits_[warp].barrier);
    case Wait::Kind::kCluster: return cluster_.barrier().describe();
    case Wait::Kind::kRegisters:
      return std::to_string(waits_[warp].phase) + " registers a thread; it has " +
             std::to_string(register_pool_.of(warp)) + ", and the block's pool " +
             std::to_string(register_pool_.num_free()) + " for one warp";
    case Wait::Kind::kPoll: return warps_[warp]->describe_poll();
    case Wait::Kind::kNone: break;
  }
  return "nothing";
}

void ThreadBlock::add_to(Counters& counters) const {
  for (const auto& warp : warps_) warp->add_to(counters);
}

}  // namespace msa_ops::emulator

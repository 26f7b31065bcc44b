#include "barriers.hpp"

#include "fault.hpp"

namespace msa_ops::emulator {
namespace {

const char* name_of(Barriers::Reduce reduce) {
  switch (reduce) {
    case Barriers::Reduce::kCount: return ".red.popc";
    case Barriers::Reduce::kAnd: return ".red.and";
    case Barriers::Reduce::kOr: return ".red.or";
    case Barriers::Reduce::kNone: break;
  }
  return ".sync or .arrive";
}

}  // namespace

void Barriers::reset(unsigned num_warps, Ordering& ordering, unsigned first_warp) {
  for (State& state : states_) {
    state.arrived = state.expected = 0;
    state.knowledge.clear();
    state.votes = {};
  }
  waits_for_.assign(num_warps, -1);
  results_.assign(num_warps, {});
  live_ = num_warps;
  ordering_ = &ordering;
  first_warp_ = first_warp;
}

void Barriers::arrive(unsigned barrier, unsigned warp, unsigned expected, bool waits, Reduce reduce) {
  if (barrier >= kCount) {
    throw Violation{FaultKind::kBarrier, "barrier " + std::to_string(barrier) + "; there are 16 from 0"};
  }
  State& state = states_[barrier];
  if (state.arrived > 0 && state.expected != expected) {
    throw Violation{FaultKind::kBarrier, "barrier " + std::to_string(barrier) + " with " + std::to_string(expected) +
                                             " warps; earlier arrivals said " + std::to_string(state.expected) +
                                             " (0: all)"};
  }
  if (state.arrived > 0 && state.reduce != reduce) {
    throw Violation{FaultKind::kBarrier, std::string(name_of(reduce)) + " at barrier " + std::to_string(barrier) +
                                             ", where earlier arrivals made " + name_of(state.reduce) +
                                             ": they may not be mixed"};
  }
  state.expected = expected;
  state.reduce = reduce;
  ++state.arrived;
  ordering_->release(state.knowledge);
  if (waits) waits_for_[warp] = static_cast<int>(barrier);
  complete_if_full(barrier);
}

void Barriers::arrive_with(unsigned barrier, unsigned warp, unsigned expected, Reduce reduce,
                           const Votes& votes) {
  if (barrier < kCount && (states_[barrier].arrived == 0 || states_[barrier].reduce == reduce)) {
    Votes& sum = states_[barrier].votes;
    sum = {sum.count + votes.count, sum.all && votes.all, sum.any || votes.any};
  }
  arrive(barrier, warp, expected, true, reduce);
}

void Barriers::exit() {
  --live_;
  for (unsigned barrier = 0; barrier < kCount; ++barrier) {
    if (states_[barrier].arrived > 0) complete_if_full(barrier);
  }
}

void Barriers::complete_if_full(unsigned barrier) {
  State& state = states_[barrier];
  if (state.arrived < (state.expected != 0 ? state.expected : live_)) return;
  for (std::size_t warp = 0; warp < waits_for_.size(); ++warp) {
    if (waits_for_[warp] != static_cast<int>(barrier)) continue;
    waits_for_[warp] = -1;
    results_[warp] = state.votes;
    ordering_->acquire(first_warp_ + static_cast<unsigned>(warp), state.knowledge);
  }
  state.arrived = state.expected = 0;
  state.knowledge.clear();
  state.votes = {};
}

std::string Barriers::describe(unsigned warp) const {
  const int barrier = waits_for_[warp];
  const State& state = states_[static_cast<unsigned>(barrier)];
  return "barrier " + std::to_string(barrier) + " (" + std::to_string(state.arrived) + " of " +
         std::to_string(state.expected != 0 ? state.expected : live_) + " warps have arrived)";
}

void ClusterBarrier::reset(unsigned warps, Ordering& ordering) {
  warps_.assign(warps, {});
  phase_ = 1;
  gathered_.clear();
  complete_.clear();
  ordering_ = &ordering;
}

void ClusterBarrier::arrive(unsigned warp, std::uint32_t lanes, std::uint32_t live, bool is_release) {
  Warp& state = warps_[warp];
  const bool again = (state.arrived & lanes) != 0 || (state.phase != 0 && state.phase != phase_ && state.waited == 0);
  if (again) {
    throw Violation{FaultKind::kBarrier, "barrier.cluster.arrive a second time without barrier.cluster.wait between"};
  }
  state.arrived |= lanes;
  state.wanted = live;
  ordering_->publish(gathered_, is_release);  // a relaxed arrival hands on what came before a fence
  if ((live & ~state.arrived) == 0) {
    state.phase = phase_;
    state.waited = 0;
    complete_if_full();
  }
}

bool ClusterBarrier::passed(unsigned warp, std::uint32_t lanes, bool is_acquire) {
  Warp& state = warps_[warp];
  if ((lanes & ~state.arrived) != 0) {
    throw Violation{FaultKind::kBarrier, "barrier.cluster.wait without barrier.cluster.arrive before it"};
  }
  if (state.phase == 0 || state.phase >= phase_) return false;
  state.waited |= lanes;
  state.arrived &= ~lanes;
  if (is_acquire) ordering_->acquire(complete_);
  ordering_->note_start_of_all();
  return true;
}

void ClusterBarrier::exit(unsigned warp) {
  warps_[warp].exited = true;
  complete_if_full();
}

void ClusterBarrier::complete_if_full() {
  bool someone = false;
  for (const Warp& warp : warps_) {
    if (!warp.exited && warp.phase != phase_) return;
    someone = someone || warp.phase == phase_;
  }
  if (!someone) return;
  ++phase_;
  complete_.join(gathered_);
}

std::string ClusterBarrier::describe() const {
  std::size_t arrived = 0, live = 0;
  for (const Warp& warp : warps_) {
    live += !warp.exited;
    arrived += !warp.exited && warp.phase == phase_;
  }
  return "the barrier of the cluster (" + std::to_string(arrived) + " of " + std::to_string(live) +
         " warps have arrived)";
}

}  // namespace msa_ops::emulator

#include "barriers.hpp"

#include "fault.hpp"

namespace msa_ops::emulator {

void Barriers::reset(unsigned num_warps) {
  states_.fill({});
  waits_for_.assign(num_warps, -1);
  live_ = num_warps;
}

void Barriers::arrive(unsigned barrier, unsigned warp, unsigned expected, bool waits) {
  if (barrier >= kCount) {
    throw Violation{FaultKind::kBarrier, "barrier " + std::to_string(barrier) + "; there are 16 from 0"};
  }
  State& state = states_[barrier];
  if (state.arrived > 0 && state.expected != expected) {
    throw Violation{FaultKind::kBarrier, "barrier " + std::to_string(barrier) + " with " + std::to_string(expected) +
                                             " warps; earlier arrivals said " + std::to_string(state.expected) +
                                             " (0: all)"};
  }
  state.expected = expected;
  ++state.arrived;
  if (waits) waits_for_[warp] = static_cast<int>(barrier);
  complete_if_full(barrier);
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
  state = {};
  for (int& waited : waits_for_) {
    if (waited == static_cast<int>(barrier)) waited = -1;
  }
}

std::string Barriers::describe(unsigned warp) const {
  const int barrier = waits_for_[warp];
  const State& state = states_[static_cast<unsigned>(barrier)];
  return "barrier " + std::to_string(barrier) + " (" + std::to_string(state.arrived) + " of " +
         std::to_string(state.expected != 0 ? state.expected : live_) + " warps have arrived)";
}

}  // namespace msa_ops::emulator

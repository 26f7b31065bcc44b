// Instructions that a whole warp executes together.
#pragma once

#include <string>

#include "warp.hpp"

namespace msa_ops::emulator::ptx {

// Throws a Violation unless all 32 lanes of the warp are here. One that can still come is waited for.
inline void require_whole_warp(const PtxWarp& warp, Mask lanes) {
  if (lanes == kAllLanes) return;
  const Mask elsewhere = warp.live() & ~lanes;
  const Mask missing = elsewhere != 0 ? elsewhere : ~lanes;
  throw Violation{FaultKind::kDivergence,
                  std::string("the instruction takes all 32 lanes of the warp; this one ") +
                      (elsewhere != 0 ? "is elsewhere" : "has ended"),
                  __builtin_ctz(missing)};
}

}  // namespace msa_ops::emulator::ptx

// Asynchronous work that ends on an mbarrier.
#pragma once

#include <cstdint>

#include "../device/async.hpp"
#include "addresses.hpp"

namespace msa_ops::emulator::ptx {

// The signal of so many bytes, and the access that the work is until it gives it.
struct Landing {
  Signal signal;
  AccessId access;
};

inline Landing landing_on(PtxWarp& warp, const SharedPlace& place, std::int64_t bytes, int lane, bool reduces = false) {
  Mbarriers& barriers = place.block->mbarriers();
  Mbarrier& barrier = barriers.at(place.address, lane);
  const AccessId access = warp.ordering().of_work(barrier.actor, static_cast<Clock>(barrier.phase + 1), false, reduces);
  return {{&barriers, &barrier, bytes, false, {}}, access};
}

}  // namespace msa_ops::emulator::ptx

// Memory that a kernel may use, as Python names it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "device/global_memory.hpp"
#include "multicast_range.hpp"

namespace msa_ops {

using StepPair = std::pair<std::uint64_t, std::uint64_t>;  // stride in bytes, count

inline emulator::Footprint footprint_from(std::uint64_t run, const std::vector<StepPair>& steps) {
  std::vector<emulator::Footprint::Step> made;
  for (const auto& [stride, count] : steps) made.push_back({stride, count});
  return {run, std::move(made)};
}

// (address, bytes, writable, name, and of memory with gaps bytes of a run and how it is repeated); memory in a multicast
// object stands for what that is bound to
using AllocationTuple = std::tuple<std::uint64_t, std::uint64_t, bool, std::string, std::uint64_t, std::vector<StepPair>>;

inline std::vector<emulator::Allocation> allocations_from(const std::vector<AllocationTuple>& tuples) {
  std::vector<emulator::Allocation> made;
  for (const auto& [address, bytes, may_write, name, run, steps] : tuples) {
    bool writable = may_write;
    auto copies = multicast_copies(address, bytes, writable);
    made.push_back({address, bytes, writable, name, std::move(copies), footprint_from(run, steps)});
  }
  return made;
}

// What a launch before may still be writing: (address, bytes, address of what stood there before, or 0, run, steps)
using PendingTuple = std::tuple<std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t, std::vector<StepPair>>;

inline std::vector<emulator::GlobalMemory::Pending> pending_from(const std::vector<PendingTuple>& tuples) {
  std::vector<emulator::GlobalMemory::Pending> made;
  for (const auto& [address, bytes, before, run, steps] : tuples) {
    made.push_back({address, address + bytes, reinterpret_cast<const std::byte*>(before),
                    footprint_from(run, steps)});
  }
  return made;
}

}  // namespace msa_ops

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

// (address, bytes, writable, name); memory in a multicast object stands for what that is bound to
using AllocationTuple = std::tuple<std::uint64_t, std::uint64_t, bool, std::string>;

inline std::vector<emulator::Allocation> allocations_from(const std::vector<AllocationTuple>& tuples) {
  std::vector<emulator::Allocation> made;
  for (const auto& [address, bytes, may_write, name] : tuples) {
    bool writable = may_write;
    auto copies = multicast_copies(address, bytes, writable);
    made.push_back({address, bytes, writable, name, std::move(copies)});
  }
  return made;
}

// What a launch before may still be writing: (address, bytes, address of what stood there before, or 0)
using PendingTuple = std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>;

inline std::vector<emulator::GlobalMemory::Pending> pending_from(const std::vector<PendingTuple>& tuples) {
  std::vector<emulator::GlobalMemory::Pending> made;
  for (const auto& [address, bytes, before] : tuples) {
    made.push_back({address, address + bytes, reinterpret_cast<const std::byte*>(before)});
  }
  return made;
}

}  // namespace msa_ops

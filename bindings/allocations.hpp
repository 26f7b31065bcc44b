// Memory that a kernel may use, as Python names it.
#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "device/global_memory.hpp"

namespace msa_ops {

// (address, bytes, writable, name)
using AllocationTuple = std::tuple<std::uint64_t, std::uint64_t, bool, std::string>;

inline std::vector<emulator::Allocation> allocations_from(const std::vector<AllocationTuple>& tuples) {
  std::vector<emulator::Allocation> made;
  for (const auto& [address, bytes, writable, name] : tuples) made.push_back({address, bytes, writable, name});
  return made;
}

}  // namespace msa_ops

// The memory that kernels share with the host: allocations of the host, at their own addresses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "fault.hpp"

namespace msa_ops::emulator {

struct Allocation {
  std::uint64_t address;
  std::uint64_t bytes;
  bool writable;
  std::string name;  // for messages
};

class GlobalMemory {
 public:
  // Ranges may overlap, as views of one tensor do; what none of them holds is out of bounds.
  explicit GlobalMemory(std::vector<Allocation> allocations);

  // The bytes at an address. Throws a Violation of that lane if they are not inside one allocation, if the address is
  // not a multiple of `bytes` (a power of two), or if they may not be written.
  std::byte* at(std::uint64_t address, std::size_t bytes, bool write, int lane) const;
  // The same for any number of bytes, and an alignment of its own.
  std::byte* range(std::uint64_t address, std::size_t bytes, std::size_t alignment, bool write, int lane) const;
  // These allocations and more.
  GlobalMemory with(const std::vector<Allocation>& more) const;

 private:
  const Allocation* holder(std::uint64_t address, std::size_t bytes, bool write) const;

  std::vector<Allocation> allocations_;
  mutable std::size_t last_ = 0;  // where the previous access was
};

}  // namespace msa_ops::emulator

#include "shared_memory.hpp"

#include <algorithm>
#include <cstring>
#include <string>

#include "fault.hpp"

namespace msa_ops::emulator {

void SharedMemory::forget() { std::fill(written_.begin(), written_.end(), static_cast<unsigned char>(0)); }

std::size_t SharedMemory::offset(std::uint64_t address, std::size_t bytes, const char* what, int lane) const {
  if (address % bytes != 0) {
    throw Violation{FaultKind::kMisaligned,
                    std::string(what) + " of " + std::to_string(bytes) + " bytes of shared memory", lane, address};
  }
  if (address < base_ || bytes > data_.size() || address - base_ > data_.size() - bytes) {
    throw Violation{FaultKind::kOutOfBounds,
                    std::string(what) + " of " + std::to_string(bytes) + " bytes of shared memory; the block has " +
                        std::to_string(data_.size()) + " bytes at " + std::to_string(base_),
                    lane, address};
  }
  return static_cast<std::size_t>(address - base_);
}

const std::byte* SharedMemory::read(std::uint64_t address, std::size_t bytes, int lane) const {
  const std::size_t start = offset(address, bytes, "read", lane);
  for (std::size_t i = start; i < start + bytes; ++i) {
    if (written_[i] == 0) {
      throw Violation{FaultKind::kUninitializedShared, "read of a byte that nothing has written", lane,
                      address + (i - start)};
    }
  }
  return &data_[start];
}

std::byte* SharedMemory::write(std::uint64_t address, std::size_t bytes, int lane) {
  const std::size_t start = offset(address, bytes, "write", lane);
  std::memset(&written_[start], 1, bytes);
  return &data_[start];
}

}  // namespace msa_ops::emulator

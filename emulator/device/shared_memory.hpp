// The memory of one thread block, which knows which of its bytes have been written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace msa_ops::emulator {

class SharedMemory {
 public:
  // Its first byte is at address `base`, so that a null pointer is out of bounds where the chip reserves the start.
  SharedMemory(std::uint64_t base, std::size_t bytes) : base_(base), data_(bytes), written_(bytes) {}

  void forget();  // every byte counts as never written

  // The bytes at an address; Violation as for GlobalMemory::at, and if a byte to be read was never written.
  const std::byte* read(std::uint64_t address, std::size_t bytes, int lane) const;
  std::byte* write(std::uint64_t address, std::size_t bytes, int lane);

 private:
  std::size_t offset(std::uint64_t address, std::size_t bytes, const char* what, int lane) const;

  std::uint64_t base_;
  std::vector<std::byte> data_;
  std::vector<unsigned char> written_;  // 1 or 0 a byte
};

}  // namespace msa_ops::emulator

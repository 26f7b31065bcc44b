// Local memory that a thread takes and gives back while it runs: alloca, stacksave, stackrestore.
//
// A thread's stack is behind its variables in local memory and grows downwards. What lies below its top is not allocated.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "instruction.hpp"

namespace msa_ops::emulator::ptx {

class Stack {
 public:
  static constexpr std::uint64_t kEnd = std::uint64_t{1} << 21;     // address of the first byte above
  static constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 19;
  static constexpr std::uint64_t kAlignment = 8;
  using Tops = std::array<std::uint64_t, kLanes>;

  Stack() { reset(); }
  void reset();  // nothing is allocated

  static bool holds(std::uint64_t address) { return address > kEnd - kMostBytes - 1 && address < kEnd; }
  // The address of so many new bytes. Violation if the stack is full, or the alignment is no power of two.
  std::uint64_t take(unsigned lane, std::uint64_t bytes, std::uint64_t alignment);
  std::uint64_t top(unsigned lane) const { return tops_[lane]; }
  // Gives back all below. Violation for an address that is not between the top and the end.
  void give_back_to(unsigned lane, std::uint64_t top);
  const Tops& tops() const { return tops_; }
  bool is_used() const { return is_used_; }  // something has been taken

  // The bytes of an aligned access. Violation for what is not allocated, or read and not written.
  std::byte* access(unsigned lane, std::uint64_t address, std::size_t bytes, bool write, const std::string& what);

 private:
  Tops tops_{};
  bool is_used_ = false;
  // Of each lane: as many bytes as have been used, the last one is the last of the stack.
  std::array<std::vector<std::byte>, kLanes> bytes_;
  std::array<std::vector<unsigned char>, kLanes> written_;
};

}  // namespace msa_ops::emulator::ptx

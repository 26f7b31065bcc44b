// Multicast objects of this process: addresses that stand for the same bytes on several emulated devices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace msa_ops {

// Addresses of its own, at which the host reads zeros and cannot write, as long as the object lives.
class MulticastRange {
 public:
  // copies: where the bytes are on each device. Throws std::invalid_argument without any or for no bytes, std::bad_alloc.
  MulticastRange(std::size_t bytes, std::vector<std::uint64_t> copies, bool writable);
  ~MulticastRange();
  MulticastRange(const MulticastRange&) = delete;
  MulticastRange& operator=(const MulticastRange&) = delete;

  std::uint64_t address() const { return address_; }
  std::size_t bytes() const { return bytes_; }
  const std::vector<std::uint64_t>& copies() const { return copies_; }
  bool writable() const { return writable_; }

 private:
  std::uint64_t address_ = 0;
  std::size_t bytes_;
  std::vector<std::uint64_t> copies_;
  bool writable_;
};

// What bytes at this address stand for on each device; nothing unless they are all in one living object. `writable` is
// cleared if the object may only be read.
std::vector<std::uint64_t> multicast_copies(std::uint64_t address, std::size_t bytes, bool& writable);

}  // namespace msa_ops

#include "multicast_range.hpp"

#include <sys/mman.h>

#include <map>
#include <mutex>
#include <new>
#include <stdexcept>
#include <utility>

namespace msa_ops {
namespace {

struct Living {
  std::mutex mutex;
  std::map<std::uint64_t, const MulticastRange*> by_address;
};
Living& living() {
  static Living all;
  return all;
}

}  // namespace

MulticastRange::MulticastRange(std::size_t bytes, std::vector<std::uint64_t> copies, bool writable)
    : bytes_(bytes), copies_(std::move(copies)),
      writable_(writable) {
  if (copies_.empty()) throw std::invalid_argument("tensors: none; accepted: those of at least one device");
  if (bytes_ == 0) throw std::invalid_argument("tensors: without elements");
  void* const place = mmap(nullptr, bytes_, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (place == MAP_FAILED) throw std::bad_alloc();
  address_ = reinterpret_cast<std::uint64_t>(place);
  const std::lock_guard<std::mutex> lock(living().mutex);
  living().by_address[address_] = this;
}

MulticastRange::~MulticastRange() {
  {
    const std::lock_guard<std::mutex> lock(living().mutex);
    living().by_address.erase(address_);
  }
  munmap(reinterpret_cast<void*>(address_), bytes_);
}

std::vector<std::uint64_t> multicast_copies(std::uint64_t address, std::size_t bytes, bool& writable) {
  const std::lock_guard<std::mutex> lock(living().mutex);
  auto found = living().by_address.upper_bound(address);
  if (found == living().by_address.begin()) return {};
  const MulticastRange& range = *(--found)->second;
  const std::uint64_t offset = address - range.address();
  if (offset > range.bytes() || bytes > range.bytes() - offset) return {};
  writable = writable && range.writable();
  std::vector<std::uint64_t> copies = range.copies();
  for (std::uint64_t& copy : copies) copy += offset;
  return copies;
}

}  // namespace msa_ops

// The memory that kernels share with the host: allocations of the host, at their own addresses.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "counters.hpp"
#include "fault.hpp"
#include "footprint.hpp"
#include "traffic.hpp"

namespace msa_ops::emulator {

struct Allocation {
  std::uint64_t address;
  std::uint64_t bytes;  // from the first to the last
  bool writable;
  std::string name;  // for messages
  // Of a multicast address: where the same bytes are on each device. Nothing is at the address itself.
  std::vector<std::uint64_t> copies{};
  Footprint footprint{};  // which of the bytes it has, if there are gaps
  // Whether this address lies between its first and its last byte, and the run or gap there, in offsets.
  bool spans(std::uint64_t at) const { return at - address < bytes; }
  Footprint::Segment segment(std::uint64_t at) const {
    return footprint.has_gaps() ? footprint.segment(at - address) : Footprint::Segment{0, bytes, true};
  }
};

class GlobalMemory {
 public:
  // They may overlap, as views of one tensor do: a byte is of the first one that has it, of those that may be written if it
  // is written. What none of them has is out of bounds.
  explicit GlobalMemory(std::vector<Allocation> allocations);

  // The bytes at an address. Throws a Violation of that lane if they are not inside one allocation (or in several views
  // of one tensor), if the address is not a multiple of `bytes` (a power of two), or if they may not be written.
  std::byte* at(std::uint64_t address, std::size_t bytes, bool write, int lane) const;
  // The same for any number of bytes, and an alignment of its own. Each call counts as one access.
  std::byte* range(std::uint64_t address, std::size_t bytes, std::size_t alignment, bool write, int lane) const;
  // What an access of a multicast address reaches: as many bytes on each device. Throws a Violation as range() does, and
  // for an address that is none; range() does for one that is. Counts as one access.
  std::vector<std::byte*> copies(std::uint64_t address, std::size_t bytes, std::size_t alignment, bool write, int lane) const;
  // The same of a store by the bulk and tensor engines, which write whatever the address stands for.
  std::vector<std::byte*> targets(std::uint64_t address, std::size_t bytes, std::size_t alignment, int lane) const;
  // An access that was written by at() or range() is a read, too.
  void count_read(std::uint64_t address, std::size_t bytes) const;
  void add_to(Counters& counters) const;     // by name of the allocation
  const std::vector<Allocation>& allocations() const { return allocations_; }
  void merge(const GlobalMemory& copy) const;  // what a copy of it has counted
  // From now on several threads of the host use it at once, each with a copy of its own.
  void share() { is_shared_ = true; }
  // Held while an atomic operation on an address is done; nothing unless threads share the memory.
  class Lock {
   public:
    explicit Lock(std::atomic_flag* flag) : flag_(flag) {
      while (flag_ != nullptr && flag_->test_and_set(std::memory_order_acquire)) {}
    }
    ~Lock() {
      if (flag_ != nullptr) flag_->clear(std::memory_order_release);
    }
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

   private:
    std::atomic_flag* flag_;
  };
  Lock lock(std::uint64_t address) const { return Lock(is_shared_ ? flag_of(address) : nullptr); }

  // ---- launches that overlap: what the last launch wrote, and what an earlier one may still write
  using Ranges = std::vector<std::pair<std::uint64_t, std::uint64_t>>;  // first address and one behind the last
  void note_launch(const GlobalMemory& totals) const;  // with what that launch has counted; copies know it too
  const Ranges& last_writes() const { return *last_writes_; }
  struct Pending {
    std::uint64_t first, end;          // addresses, as in Ranges
    const std::byte* before = nullptr;  // what stood there before that launch; unknown if null
    Footprint footprint{};              // which of these bytes, if there are gaps
    bool holds(std::uint64_t address, std::size_t bytes) const;    // all of them
    bool touches(std::uint64_t address, std::size_t bytes) const;  // some of them
  };
  void set_pending(std::vector<Pending> pending) {
    pending_ = std::make_shared<const std::vector<Pending>>(std::move(pending));
  }
  bool has_pending() const { return pending_ != nullptr && !pending_->empty(); }
  // Whether the next accesses are of a block that has not waited for earlier launches.
  void set_early(bool early) const { early_ = early; }
  // at() for a load that other writers are expected to race with (relaxed or stronger). An early one of bytes that an
  // earlier launch writes is no fault if it is known what stood there before: it gives that. After draw(), it gives
  // that or what is there now, at random.
  const std::byte* at_strongly(std::uint64_t address, std::size_t bytes, int lane) const;
  void draw(std::uint64_t seed) { generator_.emplace(static_cast<std::minstd_rand::result_type>(seed)); }

  // These allocations and more.
  GlobalMemory with(const std::vector<Allocation>& more) const;

 private:
  // Bytes around an address that are all of one allocation, and that it takes accesses of.
  struct Place {
    std::uint64_t first = 0, bytes = 0;
    std::uint64_t start = 0;  // of the allocation
    std::size_t index = 0;
    bool holds(std::uint64_t address, std::size_t count) const {
      return address - first < bytes && count <= bytes - (address - first);
    }
  };
  static std::atomic_flag* flag_of(std::uint64_t address);
  std::optional<Place> place_of(std::uint64_t address, bool write) const;
  const Allocation& found(std::uint64_t address, std::size_t bytes, std::size_t alignment, bool write, int lane) const;
  std::string beside(std::uint64_t address, std::uint64_t missing) const;
  void check_pending(std::uint64_t address, std::size_t bytes, bool write, int lane) const;

  std::vector<Allocation> allocations_;
  bool is_shared_ = false;
  mutable std::array<Place, 2> last_;  // where the previous read and write were, if not at a multicast address
  mutable std::vector<Traffic> traffic_;
  std::shared_ptr<Ranges> last_writes_ = std::make_shared<Ranges>();
  std::shared_ptr<const std::vector<Pending>> pending_;
  mutable std::optional<std::minstd_rand> generator_;
  mutable bool early_ = false;
};

}  // namespace msa_ops::emulator

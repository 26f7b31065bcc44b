// Asynchronous work of single threads that they wait for in groups.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "../device/ordering.hpp"
#include "../device/shared_memory.hpp"
#include "instruction.hpp"

namespace msa_ops::emulator::ptx {

// cp.async of a warp. The copies happen when they are waited for.
class Copies {
 public:
  struct Copy {
    unsigned lane;
    std::uint32_t bytes, given;   // the rest is zeros
    std::uint64_t to;
    const std::byte* from;
    Clock clock;                  // of the group
  };
  static constexpr unsigned kGroups = 64;  // whose clocks are kept, of each lane

  void reset();
  Clock clock() const { return clock_; }  // of what is copied now
  void add(Copy copy);
  void commit(Mask lanes);
  Clock close();  // what was copied until now has this clock or an earlier one
  // Finishes all but the last `but` groups of these lanes; the latest clock that they have seen then.
  Clock wait(Mask lanes, std::uint32_t but, SharedMemory& shared);
  Clock wait_all(Mask lanes, SharedMemory& shared);
  void finish(Mask lanes, Clock clock, SharedMemory& shared);

 private:
  std::vector<Copy> pending_;
  Clock clock_ = 1;
  std::array<std::uint64_t, kLanes> groups_{};  // committed
  std::vector<std::array<Clock, kGroups>> clocks_;
};

// Bulk groups of a warp's threads.
class BulkGroups {
 public:
  // Who reads the sources of a lane's groups, and who writes their results: the clock is the group.
  struct Actors {
    Actor reading, writing;
  };

  void reset(unsigned actor_warp) {
    open_.fill(1);
    actors_.fill({});
    first_lane_ = kLanes;
    first_ = std::uint64_t{actor_warp} * kLanes + 1;
  }
  std::uint64_t open(unsigned lane) const { return open_[lane]; }  // the group that is being gathered, from 1
  std::uint64_t queue(unsigned lane) const { return first_ + lane; }
  Actors actors(unsigned lane, Ordering& ordering) {
    auto& known = actors_[lane];
    if (known) return *known;
    if (first_lane_ == kLanes) first_lane_ = lane;
    const unsigned warp = static_cast<unsigned>((first_ - 1) / kLanes);
    known = lane == first_lane_ ? Actors{ordering.actor(warp, Ordering::Queue::kBulk),
                                         ordering.actor(warp, Ordering::Queue::kBulkWrites)}
                                : Actors{ordering.add_actor(), ordering.add_actor()};
    return *known;
  }
  bool is_used(unsigned lane) const { return actors_[lane].has_value(); }
  void commit(Mask lanes) {
    for (; lanes != 0; lanes &= lanes - 1) ++open_[static_cast<unsigned>(__builtin_ctz(lanes))];
  }

 private:
  std::array<std::uint64_t, kLanes> open_{};
  std::array<std::optional<Actors>, kLanes> actors_{};
  unsigned first_lane_ = kLanes;  // to have any: the warp's own; others get new ones
  std::uint64_t first_ = 1;
};

}  // namespace msa_ops::emulator::ptx

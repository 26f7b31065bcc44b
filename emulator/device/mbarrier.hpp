// Barrier objects in shared memory: arrivals and bytes, in phases.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ordering.hpp"
#include "shared_memory.hpp"

namespace msa_ops::emulator {

struct Mbarrier {
  std::uint64_t address = 0;
  std::uint32_t expected = 0;  // arrivals a phase
  std::uint32_t pending = 0;   // of the present phase
  std::int64_t bytes = 0;      // announced minus arrived
  std::uint64_t phase = 0;     // completed phases
  std::uint32_t in_flight = 0; // asynchronous work that the present phase waits for
  Actor actor = 0;             // work that ends here: its clock is the phase, from 1
  Knowledge arrived, complete;
  std::optional<unsigned> completed_by;  // the warp whose arrival completed the last phase
  Actor initialized_by = 0;    // a warp, its clock
  Clock initialized_at = 0;
};

// The mbarriers of one block.
class Mbarriers {
 public:
  Mbarriers(SharedMemory& shared, Ordering& ordering) : shared_(shared), ordering_(ordering) {}
  void reset();

  // Each throws a Violation of the lane for misuse. The present warp acts.
  void init(std::uint64_t address, std::uint32_t count, int lane);
  void invalidate(std::uint64_t address, int lane);
  // The barrier at an address, whose initialisation the present warp must have seen.
  Mbarrier& at(std::uint64_t address, int lane);

  // Returns the state before: a token for test_wait.
  std::uint64_t arrive(Mbarrier& barrier, std::uint32_t count, bool is_release, bool may_complete, int lane);
  void drop(Mbarrier& barrier, std::uint32_t count, int lane);  // fewer arrivals from the next phase on
  void expect_bytes(Mbarrier& barrier, std::int64_t bytes, int lane);
  // Work has ended; the present warp is not the one who did it.
  void work_done(Mbarrier& barrier, std::int64_t bytes);
  void work_arrives(Mbarrier& barrier, const Knowledge& knowledge);

  static bool complete(const Mbarrier& barrier, std::uint64_t token) { return barrier.phase != token >> 32; }
  static bool complete_parity(const Mbarrier& barrier, std::uint32_t parity) {
    return (barrier.phase & 1) != (parity & 1);
  }
  // Whether the present warp knows that `phase` phases are complete: it has completed the last one, or has seen that.
  static bool known_complete(const Mbarrier& barrier, std::uint64_t phase, const Ordering& ordering) {
    return ordering.has_heard(ordering.current(), barrier.actor, static_cast<Clock>(phase)) ||
           (phase == barrier.phase && barrier.completed_by == ordering.current());
  }
  std::string describe(const Mbarrier& barrier) const;
  SharedMemory& shared() { return shared_; }
  std::uint64_t version() const { return version_; }  // of completed phases

 private:
  void add_bytes(Mbarrier& barrier, std::int64_t bytes, int lane);
  void note_remote(const Mbarrier& barrier);
  void complete_if_full(Mbarrier& barrier, int lane);

  SharedMemory& shared_;
  Ordering& ordering_;
  std::map<std::uint64_t, std::unique_ptr<Mbarrier>> barriers_;
  std::vector<std::unique_ptr<Mbarrier>> invalid_;  // kept for those who still look at them
  Mbarrier* last_ = nullptr;
  std::uint64_t version_ = 0;
};

}  // namespace msa_ops::emulator

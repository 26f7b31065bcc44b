#include "mbarrier.hpp"

#include <sstream>

#include "fault.hpp"

namespace msa_ops::emulator {
namespace {

constexpr std::uint32_t kMostArrivals = (1U << 20) - 1;
constexpr std::int64_t kMostBytes = (1 << 20) - 1;

[[noreturn]] void fail(const std::string& message, int lane, std::uint64_t address) {
  throw Violation{FaultKind::kMbarrier, message, lane, address};
}

}  // namespace

void Mbarriers::reset() {
  barriers_.clear();
  invalid_.clear();
  last_ = nullptr;
}

void Mbarriers::init(std::uint64_t address, std::uint32_t count, int lane) {
  if (count < 1 || count > kMostArrivals) {
    fail("a count of " + std::to_string(count) + "; accepted: 1 to 1048575", lane, address);
  }
  if (const auto known = barriers_.find(address); known != barriers_.end()) {
    // A thread of every warp may initialise it: as long as nobody has used it, that leaves it as it is.
    const Mbarrier& old = *known->second;
    const bool fresh = old.phase == 0 && old.pending == old.expected && old.bytes == 0 && old.in_flight == 0;
    const bool by_another = old.initialized_by != ordering_.actor(ordering_.current());
    if (fresh && by_another && old.expected == count) return;
    fail("mbarrier.init of an mbarrier that was not invalidated", lane, address);
  }
  shared_.become_mbarrier(address, lane);
  auto made = std::make_unique<Mbarrier>();
  made->address = address;
  made->expected = made->pending = count;
  made->actor = ordering_.add_actor();
  made->initialized_by = ordering_.actor(ordering_.current());
  made->initialized_at = ordering_.clock();
  barriers_[address] = std::move(made);
  last_ = nullptr;
}

void Mbarriers::invalidate(std::uint64_t address, int lane) {
  Mbarrier& barrier = at(address, lane);
  if (barrier.in_flight > 0) {
    fail("mbarrier.inval with " + std::to_string(barrier.in_flight) + " asynchronous operations still on their way",
         lane, address);
  }
  shared_.cease_mbarrier(address);
  ++barrier.phase;
  const auto found = barriers_.find(address);
  invalid_.push_back(std::move(found->second));
  barriers_.erase(found);
  last_ = nullptr;
}

Mbarrier& Mbarriers::at(std::uint64_t address, int lane) {
  if (last_ == nullptr || last_->address != address) {
    if (address % 8 != 0) throw Violation{FaultKind::kMisaligned, "an mbarrier has 8 bytes", lane, address};
    const auto found = barriers_.find(address);
    if (found == barriers_.end()) {
      if (!shared_.holds(address)) {
        throw Violation{FaultKind::kOutOfBounds, "an mbarrier outside the block's shared memory", lane, address};
      }
      fail("no mbarrier was initialised here", lane, address);
    }
    last_ = found->second.get();
  }
  if (!ordering_.seen(last_->initialized_by, last_->initialized_at)) {
    throw Violation{FaultKind::kRace, "use of an mbarrier that nothing orders after its initialisation", lane, address};
  }
  return *last_;
}

std::uint64_t Mbarriers::arrive(Mbarrier& barrier, std::uint32_t count, bool is_release, bool may_complete, int lane) {
  if (count < 1 || count > barrier.pending) {
    fail(std::to_string(count) + " arrivals where the phase waits for " + std::to_string(barrier.pending) + " of " +
             std::to_string(barrier.expected),
         lane, barrier.address);
  }
  note_remote(barrier);
  const std::uint64_t token = barrier.phase << 32 | barrier.pending;
  if (!may_complete && count == barrier.pending) {
    fail("an arrival that must not complete the phase is the last one", lane, barrier.address);
  }
  ordering_.publish(barrier.arrived, is_release);
  barrier.pending -= count;
  complete_if_full(barrier, lane);
  return token;
}

void Mbarriers::note_remote(const Mbarrier& barrier) {
  RemoteUse& uses = shared_.remote_use();
  if (uses.is_remote(ordering_.current())) uses.note_arrival(barrier.actor, barrier.phase);
}

void Mbarriers::drop(Mbarrier& barrier, std::uint32_t count, int lane) {
  if (count > barrier.expected) fail("more arrivals dropped than the mbarrier expects", lane, barrier.address);
  barrier.expected -= count;
}

void Mbarriers::expect_bytes(Mbarrier& barrier, std::int64_t bytes, int lane) {
  note_remote(barrier);
  add_bytes(barrier, bytes, lane);
}

void Mbarriers::add_bytes(Mbarrier& barrier, std::int64_t bytes, int lane) {
  barrier.bytes += bytes;
  if (barrier.bytes > kMostBytes || barrier.bytes < -kMostBytes) {
    fail("a transaction count of " + std::to_string(barrier.bytes) + "; accepted: -1048575 to 1048575", lane,
         barrier.address);
  }
}

void Mbarriers::work_done(Mbarrier& barrier, std::int64_t bytes) {
  --barrier.in_flight;
  add_bytes(barrier, -bytes, -1);
  complete_if_full(barrier, -1);
}

void Mbarriers::work_arrives(Mbarrier& barrier, const Knowledge& knowledge) {
  --barrier.in_flight;
  if (barrier.pending == 0) {
    fail("an arrival of asynchronous work where the phase waits for none", -1, barrier.address);
  }
  barrier.arrived.join(knowledge);
  --barrier.pending;
  complete_if_full(barrier, -1);
}

void Mbarriers::complete_if_full(Mbarrier& barrier, int lane) {
  if (barrier.pending > 0 || barrier.bytes != 0) return;
  if (barrier.in_flight > 0) {
    fail("the phase completes while " + std::to_string(barrier.in_flight) +
             " asynchronous operations that signal it are on their way: too few bytes were expected",
         lane, barrier.address);
  }
  ++barrier.phase;
  barrier.completed_by = lane >= 0 ? std::optional(ordering_.current()) : std::nullopt;
  barrier.pending = barrier.expected;
  barrier.complete.join(barrier.arrived);
  barrier.arrived.clear();
  if (barrier.complete.seen.size() <= barrier.actor) barrier.complete.seen.resize(barrier.actor + 1, 0);
  barrier.complete.seen[barrier.actor] = static_cast<Clock>(barrier.phase);
  ++version_;
}

std::string Mbarriers::describe(const Mbarrier& barrier) const {
  std::ostringstream address;
  address << std::hex << barrier.address;
  std::string text = "the mbarrier at 0x" + address.str() + " in phase " + std::to_string(barrier.phase) + " (" +
                     std::to_string(barrier.expected - barrier.pending) +
                     " of " + std::to_string(barrier.expected) + " arrivals";
  if (barrier.bytes < 0) text += ", " + std::to_string(-barrier.bytes) + " bytes more than were expected";
  if (barrier.bytes > 0) text += ", " + std::to_string(barrier.bytes) + " bytes to come";
  return text + ")";
}

}  // namespace msa_ops::emulator

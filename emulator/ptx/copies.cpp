#include "copies.hpp"

#include <algorithm>
#include <cstring>

namespace msa_ops::emulator::ptx {

void Copies::reset() {
  pending_.clear();
  clock_ = 1;
  groups_.fill(0);
}

void Copies::add(Copy copy) {
  copy.clock = clock_;
  pending_.push_back(copy);
}

Clock Copies::close() { return clock_++; }

void Copies::commit(Mask lanes) {
  if (clocks_.empty()) clocks_.resize(kLanes);
  const Clock clock = close();
  for (; lanes != 0; lanes &= lanes - 1) {
    const auto lane = static_cast<unsigned>(__builtin_ctz(lanes));
    clocks_[lane][groups_[lane]++ % kGroups] = clock;
  }
}

Clock Copies::wait(Mask lanes, std::uint32_t but, SharedMemory& shared) {
  Clock latest = 0;
  for (; lanes != 0; lanes &= lanes - 1) {
    const auto lane = static_cast<unsigned>(__builtin_ctz(lanes));
    if (groups_[lane] <= but || but >= kGroups) continue;
    const Clock clock = clocks_[lane][(groups_[lane] - but - 1) % kGroups];
    finish(Mask{1} << lane, clock, shared);
    latest = std::max(latest, clock);
  }
  return latest;
}

Clock Copies::wait_all(Mask lanes, SharedMemory& shared) {
  const Clock clock = close();
  finish(lanes, clock, shared);
  return clock;
}

void Copies::finish(Mask lanes, Clock clock, SharedMemory& shared) {
  const auto done = [&](const Copy& copy) {
    if ((lanes >> copy.lane & 1) == 0 || copy.clock > clock) return false;
    std::byte* to = shared.bytes(copy.to, copy.bytes);
    if (copy.given > 0) std::memcpy(to, copy.from, copy.given);
    std::memset(to + copy.given, 0, copy.bytes - copy.given);
    shared.mark_written(copy.to, copy.bytes);
    return true;
  };
  pending_.erase(std::remove_if(pending_.begin(), pending_.end(), done), pending_.end());
}

}  // namespace msa_ops::emulator::ptx

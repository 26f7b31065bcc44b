#include "lds_order.hpp"

#include <algorithm>

namespace msa_ops::emulator::gfx950 {

void LdsOrder::reset() {
  now_ = 1;
  known_ = {};
  for (auto& history : history_) history.clear();
  locations_.clear();
  has_locks_ = false;
}

bool LdsOrder::after_atomics(unsigned wave, std::uint32_t address) const {
  const auto found = locations_.find(address);
  if (found == locations_.end()) return false;
  for (unsigned other = 0; other < kWaves; ++other) {
    if (other != wave && !after(wave, other, found->second.last[other])) return false;
  }
  return true;
}

void LdsOrder::join(unsigned wave, const Clock& clock) {
  Clock& known = known_[wave];
  bool changed = false;
  for (unsigned other = 0; other < kWaves; ++other) {
    if (other == wave || clock[other] <= known[other]) continue;
    known[other] = clock[other];
    changed = true;
  }
  if (changed) history_[wave].emplace_back(now_, known);
}

void LdsOrder::take_up(unsigned wave, unsigned other, std::uint32_t time) {
  const auto& history = history_[other];
  const auto later = std::upper_bound(history.begin(), history.end(), time,
                                      [](std::uint32_t at, const auto& entry) { return at < entry.first; });
  Clock clock = later == history.begin() ? Clock{} : std::prev(later)->second;
  clock[other] = std::max(clock[other], time);
  join(wave, clock);
}

void LdsOrder::take_up_atomics(unsigned wave, std::uint32_t address) {
  const auto found = locations_.find(address);
  if (found != locations_.end()) join(wave, found->second.known);
}

void LdsOrder::atomic(unsigned wave, std::uint32_t address, bool locks) {
  Location& location = locations_[address];
  location.last[wave] = location.known[wave] = now_;
  for (unsigned other = 0; other < kWaves; ++other)
    location.known[other] = std::max(location.known[other], known_[wave][other]);
  if (!locks) return;
  location.lockers |= 1U << wave;
  has_locks_ = true;
}

bool LdsOrder::may_unlock(unsigned wave, std::uint32_t address) const {
  const auto found = locations_.find(address);
  return found != locations_.end() && (found->second.lockers >> wave & 1) != 0;
}

}  // namespace msa_ops::emulator::gfx950

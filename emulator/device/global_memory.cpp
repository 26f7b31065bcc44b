#include "global_memory.hpp"

#include <algorithm>
#include <utility>

namespace msa_ops::emulator {
GlobalMemory::GlobalMemory(std::vector<Allocation> allocations) : allocations_(std::move(allocations)) {
  // Multicast addresses are found first, whatever views of them the host has made.
  std::stable_partition(allocations_.begin(), allocations_.end(), [](const Allocation& one) { return !one.copies.empty(); });
  for (const Allocation& range : allocations_) traffic_.emplace_back(range.bytes);
}

bool GlobalMemory::Pending::holds(std::uint64_t address, std::size_t bytes) const {
  if (footprint.has_gaps()) return address >= first && footprint.holds(address - first, bytes);
  return address >= first && address <= end && bytes <= end - address;
}

bool GlobalMemory::Pending::touches(std::uint64_t address, std::size_t bytes) const {
  if (address >= end || first >= address + bytes) return false;
  if (!footprint.has_gaps() || address < first) return true;
  return footprint.touches(address - first, bytes);
}

std::optional<GlobalMemory::Place> GlobalMemory::place_of(std::uint64_t address, bool write) const {
  std::optional<Place> found;
  std::uint64_t first = 0, end = UINT64_MAX;  // what no earlier allocation has
  for (std::size_t i = 0; i < allocations_.size(); ++i) {
    const Allocation& range = allocations_[i];
    if (!range.spans(address)) {
      if (write && !range.writable) continue;
      if (range.address > address) end = std::min(end, range.address);
      else first = std::max(first, range.address + range.bytes);
      continue;
    }
    const Footprint::Segment here = range.segment(address);
    const std::uint64_t here_first = range.address + here.first;
    const std::uint64_t here_end = here.end == UINT64_MAX ? here.end : range.address + here.end;
    if (here.inside && (range.writable || !write)) {
      first = std::max(first, here_first);
      end = std::min(end, here_end);
      return Place{first, end - first, range.address, i};
    }
    if (here.inside) {
      if (!found) found = Place{address, 1, range.address, i};  // it may not be written
    } else if (range.writable || !write) {
      first = std::max(first, here_first);
      end = std::min(end, here_end);
    }
  }
  return found;
}

std::byte* GlobalMemory::at(std::uint64_t address, std::size_t bytes, bool write, int lane) const {
  return range(address, bytes, bytes, write, lane);
}

std::atomic_flag* GlobalMemory::flag_of(std::uint64_t address) {
  static std::atomic_flag flags[64];
  return &flags[address / 16 % 64];
}

GlobalMemory GlobalMemory::with(const std::vector<Allocation>& more) const {
  std::vector<Allocation> all = allocations_;
  all.insert(all.end(), more.begin(), more.end());
  GlobalMemory made(std::move(all));
  made.last_writes_ = last_writes_;
  made.pending_ = pending_;
  return made;
}

void GlobalMemory::note_launch(const GlobalMemory& totals) const {
  last_writes_->clear();
  for (std::size_t i = 0; i < totals.allocations_.size(); ++i) {
    const Allocation& range = totals.allocations_[i];
    const std::vector<std::uint64_t> itself{range.address};
    for (const std::uint64_t start : range.copies.empty() ? itself : range.copies) {
      for (const auto& [first, end] : totals.traffic_[i].written()) last_writes_->emplace_back(start + first, start + end);
    }
  }
}

void GlobalMemory::check_pending(std::uint64_t address, std::size_t bytes, bool write, int lane) const {
  for (const Pending& one : *pending_) {
    if (one.touches(address, bytes)) {
      throw Violation{FaultKind::kGridWait,
                      std::string(write ? "write to" : "read of") +
                          " bytes that an earlier launch writes, before griddepcontrol.wait",
                      lane, std::max(address, one.first)};
    }
  }
}

const std::byte* GlobalMemory::at_strongly(std::uint64_t address, std::size_t bytes, int lane) const {
  const std::byte* before = nullptr;
  if (early_) {
    for (const Pending& one : *pending_) {
      if (one.before != nullptr && one.holds(address, bytes)) {
        before = one.before + (address - one.first);
      }
    }
  }
  if (before == nullptr) return at(address, bytes, false, lane);
  early_ = false;
  const std::byte* now = at(address, bytes, false, lane);
  early_ = true;
  return generator_ && (*generator_)() % 2 == 0 ? now : before;
}

std::byte* GlobalMemory::range(std::uint64_t address, std::size_t bytes, std::size_t alignment, bool write,
                               int lane) const {
  auto* const place = reinterpret_cast<std::byte*>(address);
  if (early_) check_pending(address, bytes, write, lane);
  const Place& last = last_[write ? 1 : 0];
  if (address % alignment == 0 && last.holds(address, bytes)) {
    traffic_[last.index].count(address - last.start, bytes, write);
    return place;
  }
  const Allocation& range = found(address, bytes, alignment, write, lane);
  if (!range.copies.empty()) {
    throw Violation{FaultKind::kMulticast,
                    std::string(write ? "write to" : "read of") + " the multicast address of " + range.name +
                        ", where only multimem leads",
                    lane, address};
  }
  return place;
}

std::vector<std::byte*> GlobalMemory::copies(std::uint64_t address, std::size_t bytes, std::size_t alignment, bool write,
                                             int lane) const {
  const Allocation& range = found(address, bytes, alignment, write, lane);
  if (range.copies.empty()) {
    throw Violation{FaultKind::kMulticast, "multimem at an address of " + range.name + ", which is no multicast address",
                    lane, address};
  }
  std::vector<std::byte*> places;
  for (const std::uint64_t start : range.copies) {
    const std::uint64_t copy = start + (address - range.address);
    if (early_) check_pending(copy, bytes, write, lane);
    places.push_back(reinterpret_cast<std::byte*>(copy));
  }
  return places;
}

std::vector<std::byte*> GlobalMemory::targets(std::uint64_t address, std::size_t bytes, std::size_t alignment,
                                              int lane) const {
  const std::optional<Place> place = place_of(address, true);
  if (!place || allocations_[place->index].copies.empty()) return {this->range(address, bytes, alignment, true, lane)};
  return copies(address, bytes, alignment, true, lane);
}

const Allocation& GlobalMemory::found(std::uint64_t address, std::size_t bytes, std::size_t alignment, bool write,
                                      int lane) const {
  const auto what = [&] { return std::string(write ? "write" : "read") + " of " + std::to_string(bytes) + " bytes"; };
  if (address % alignment != 0) throw Violation{FaultKind::kMisaligned, what() + " of global memory", lane, address};
  const auto is_in_one_tensor = [&](std::uint64_t at) {  // this byte and the one before
    return std::any_of(allocations_.begin(), allocations_.end(),
                       [&](const Allocation& one) { return one.spans(at - 1) && one.spans(at); });
  };
  const Allocation* owner = nullptr;
  for (std::uint64_t at = address; at < address + bytes || owner == nullptr;) {
    const std::optional<Place> place = place_of(at, write);
    // What happens to lie behind a tensor is none of its own.
    if (!place || (owner != nullptr && !is_in_one_tensor(at))) {
      throw Violation{FaultKind::kOutOfBounds, what() + " outside every global allocation" + beside(address, at), lane,
                      address};
    }
    const Allocation& next = allocations_[place->index];
    if (write && !next.writable) throw Violation{FaultKind::kReadOnly, what() + " to " + next.name, lane, address};
    if (owner == nullptr) owner = &next;
    if (next.copies.empty()) last_[write ? 1 : 0] = *place;
    const std::uint64_t count = std::min<std::uint64_t>(address + bytes - at, place->first + place->bytes - at);
    traffic_[place->index].count(at - place->start, count, write);
    at += count;
  }
  return *owner;
}

// Of the allocation whose bytes end closest before the first one that is missing.
std::string GlobalMemory::beside(std::uint64_t address, std::uint64_t missing) const {
  constexpr std::uint64_t kNear = 4096;
  std::uint64_t closest = UINT64_MAX;
  std::string found;
  for (const Allocation& other : allocations_) {
    if (missing < other.address || missing - other.address >= other.bytes + kNear || other.bytes == 0) continue;
    const std::string start = ", the access starts at " + std::to_string(static_cast<std::int64_t>(address - other.address));
    if (!other.spans(missing)) {
      const std::uint64_t distance = missing - other.address - other.bytes;
      if (distance >= closest) continue;
      closest = distance;
      found = "; " + other.name + " of " + std::to_string(other.bytes) + " bytes ends at byte offset " +
              std::to_string(other.bytes) + start;
      continue;
    }
    const Footprint::Segment here = other.segment(missing);
    const std::uint64_t distance = missing - other.address - here.first;
    if (here.inside || distance >= closest) continue;
    closest = distance;
    found = "; " + other.name + " has a gap between its rows, from byte offset " + std::to_string(here.first) + " to " +
            std::to_string(here.end - 1) + start;
  }
  return found;
}

void GlobalMemory::count_read(std::uint64_t address, std::size_t bytes) const {
  for (std::uint64_t at = address; at < address + bytes;) {
    const std::optional<Place> place = last_[1].holds(at, address + bytes - at) ? last_[1] : place_of(at, true);
    if (!place) return;  // it was written
    const std::uint64_t count = std::min<std::uint64_t>(address + bytes - at, place->first + place->bytes - at);
    traffic_[place->index].count(at - place->start, count, false);
    at += count;
  }
}

void GlobalMemory::merge(const GlobalMemory& copy) const {
  for (std::size_t i = 0; i < traffic_.size(); ++i) traffic_[i].merge(copy.traffic_[i]);
}

void GlobalMemory::add_to(Counters& counters) const {
  for (std::size_t i = 0; i < allocations_.size(); ++i) {
    const Traffic::Counts& counts = traffic_[i].counts();
    if (counts.read == 0 && counts.written == 0) continue;
    auto& total = counters.tensor_bytes[allocations_[i].name];
    total[0] += counts.read;
    total[1] += counts.read_first;
    total[2] += counts.written;
    total[3] += counts.written_first;
    if (allocations_[i].copies.empty()) continue;
    auto& multicast = counters.bytes_by_space["multicast"];
    multicast[0] += counts.read;
    multicast[1] += counts.written;
  }
}

}  // namespace msa_ops::emulator

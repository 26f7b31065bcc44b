#include "global_memory.hpp"

#include <algorithm>
#include <utility>

namespace msa_ops::emulator {
namespace {

bool holds(const Allocation& range, std::uint64_t address, std::size_t bytes) {
  return address >= range.address && bytes <= range.bytes && address - range.address <= range.bytes - bytes;
}

}  // namespace

GlobalMemory::GlobalMemory(std::vector<Allocation> allocations) : allocations_(std::move(allocations)) {
  // Multicast addresses are found first, whatever views of them the host has made.
  std::stable_partition(allocations_.begin(), allocations_.end(), [](const Allocation& one) { return !one.copies.empty(); });
  for (const Allocation& range : allocations_) traffic_.emplace_back(range.bytes);
}

const Allocation* GlobalMemory::holder(std::uint64_t address, std::size_t bytes, bool write) const {
  const Allocation* found = nullptr;
  for (const Allocation& range : allocations_) {
    if (!holds(range, address, bytes)) continue;
    found = &range;
    if (range.writable || !write) break;
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
  for (const auto& [first, end, before] : *pending_) {
    if (address < end && first < address + bytes) {
      throw Violation{FaultKind::kGridWait,
                      std::string(write ? "write to" : "read of") +
                          " bytes that an earlier launch writes, before griddepcontrol.wait",
                      lane, std::max(address, first)};
    }
  }
}

const std::byte* GlobalMemory::at_strongly(std::uint64_t address, std::size_t bytes, int lane) const {
  const std::byte* before = nullptr;
  if (early_) {
    for (const Pending& one : *pending_) {
      if (one.before != nullptr && holds({one.first, one.end - one.first, false, {}}, address, bytes)) {
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
  if (last_ < allocations_.size()) {
    const Allocation& range = allocations_[last_];
    if (address % alignment == 0 && holds(range, address, bytes) && (range.writable || !write) && range.copies.empty()) {
      traffic_[last_].count(address - range.address, bytes, write);
      return place;
    }
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
  const Allocation* const range = holder(address, bytes, true);
  if (range == nullptr || range->copies.empty()) return {this->range(address, bytes, alignment, true, lane)};
  return copies(address, bytes, alignment, true, lane);
}

const Allocation& GlobalMemory::found(std::uint64_t address, std::size_t bytes, std::size_t alignment, bool write,
                                      int lane) const {
  const auto what = [&] { return std::string(write ? "write" : "read") + " of " + std::to_string(bytes) + " bytes"; };
  if (address % alignment != 0) throw Violation{FaultKind::kMisaligned, what() + " of global memory", lane, address};
  const Allocation* const range = holder(address, bytes, write);
  if (range == nullptr) {
    std::string nearest;
    for (const Allocation& other : allocations_) {
      if (address >= other.address && address - other.address < other.bytes + 4096) {
        nearest = "; " + other.name + " of " + std::to_string(other.bytes) + " bytes ends at byte offset " +
                  std::to_string(other.bytes) + ", the access starts at " + std::to_string(address - other.address);
      }
    }
    throw Violation{FaultKind::kOutOfBounds, what() + " outside every global allocation" + nearest, lane, address};
  }
  if (write && !range->writable) throw Violation{FaultKind::kReadOnly, what() + " to " + range->name, lane, address};
  last_ = static_cast<std::size_t>(range - allocations_.data());
  traffic_[last_].count(address - range->address, bytes, write);
  return *range;
}

void GlobalMemory::count_read(std::uint64_t address, std::size_t bytes) const {
  traffic_[last_].count(address - allocations_[last_].address, bytes, false);
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

#include "tensor_memory.hpp"

#include <algorithm>
#include <string>

#include "fault.hpp"

namespace msa_ops::emulator {
namespace {

[[noreturn]] void fail(const std::string& message) { throw Violation{FaultKind::kTensorMemory, message}; }

std::uint64_t address_of(unsigned lane, unsigned column) { return std::uint64_t{lane} << 16 | column; }

}  // namespace

std::string describe(const TensorMemory::Range& range) {
  return "lanes " + std::to_string(range.lane) + " to " + std::to_string(range.lane + range.lanes - 1) + ", columns " +
         std::to_string(range.column) + " to " + std::to_string(range.column + range.columns - 1);
}

TensorMemory::TensorMemory(unsigned columns, Ordering& ordering, const Program& program)
    : columns_(columns),
      data_(std::size_t{columns} * kLanes),
      cells_(std::size_t{columns} * kParts),
      owner_(columns / kUnit),
      ordering_(ordering),
      program_(program) {}

void TensorMemory::start() {
  std::fill(cells_.begin(), cells_.end(), Cell{});
  std::fill(owner_.begin(), owner_.end(), 0U);
  allocations_.clear();
  may_allocate_ = true;
  group_ = 0;
  wanted_ = 0;
  granted_ = -1;
}

void TensorMemory::finish() const {
  const auto left = static_cast<unsigned>(owner_.size() - static_cast<std::size_t>(std::count(owner_.begin(), owner_.end(), 0U)));
  if (left > 0) fail("the block ends with " + std::to_string(left * kUnit) + " columns still allocated");
}

int TensorMemory::allocate(unsigned columns, std::uint32_t pc) {
  if (!may_allocate_) fail("an allocation after tcgen05.relinquish_alloc_permit");
  const unsigned units = columns / kUnit;
  for (unsigned first = 0; first + units <= owner_.size(); ++first) {
    const auto begin = owner_.begin() + first;
    if (!std::all_of(begin, begin + units, [](std::uint32_t owner) { return owner == 0; })) continue;
    allocations_.push_back(pc);
    std::fill(begin, begin + units, static_cast<std::uint32_t>(allocations_.size()));
    return static_cast<int>(first * kUnit);
  }
  return -1;
}

int TensorMemory::allocate_with(TensorMemory& peer, unsigned columns, std::uint32_t pc) {
  if (granted_ >= 0) {
    const int first = granted_;
    granted_ = -1;
    return first;
  }
  wanted_ = columns;
  if (peer.wanted_ == 0) return -1;
  if (peer.wanted_ != columns) {
    fail(std::to_string(columns) + " columns, of which the other block of the pair wants " + std::to_string(peer.wanted_));
  }
  const int first = allocate(columns, pc);
  if (first < 0) return -1;
  const int other = peer.allocate(columns, pc);
  if (other != first) {
    deallocate(static_cast<unsigned>(first), columns);
    if (other >= 0) fail("the blocks of a pair have allocated differently before");
    return -1;
  }
  wanted_ = peer.wanted_ = 0;
  peer.granted_ = first;
  return first;
}

void TensorMemory::deallocate(unsigned first, unsigned columns) {
  const unsigned unit = first / kUnit, units = columns / kUnit;
  const bool inside = first % kUnit == 0 && unit + units <= owner_.size();
  const std::uint32_t owner = inside ? owner_[unit] : 0;
  const bool whole = owner != 0 &&
                     std::all_of(owner_.begin() + unit, owner_.begin() + unit + units,
                                 [&](std::uint32_t other) { return other == owner; }) &&
                     static_cast<unsigned>(std::count(owner_.begin(), owner_.end(), owner)) == units;
  if (!whole) {
    fail("columns " + std::to_string(first) + " to " + std::to_string(first + columns - 1) +
         " are not an allocation of this block");
  }
  // Whoever still uses them must be known to have finished.
  use<true>({0, kLanes, first, columns}, ordering_.own(false), 0);
  std::fill(cells_.begin() + std::size_t{first} * kParts, cells_.begin() + std::size_t{first + columns} * kParts, Cell{});
  std::fill(owner_.begin() + unit, owner_.begin() + unit + units, 0U);
}

std::string TensorMemory::describe_allocations() const {
  std::string held;
  unsigned free = 0, most = 0;
  for (std::size_t unit = 0; unit < owner_.size();) {
    const std::uint32_t owner = owner_[unit];
    const std::size_t first = unit;
    while (unit < owner_.size() && owner_[unit] == owner) ++unit;
    const auto columns = static_cast<unsigned>(unit - first) * kUnit;
    if (owner == 0) {
      free += columns;
      most = std::max(most, columns);
      continue;
    }
    const auto start = static_cast<unsigned>(first) * kUnit;
    held += "; columns " + std::to_string(start) + " to " + std::to_string(start + columns - 1) +
            " are held since " + program_.where(allocations_[owner - 1]);
  }
  return std::to_string(free) + " of " + std::to_string(columns_) + " are free, " + std::to_string(most) +
         " in a row" + held;
}

void TensorMemory::relinquish() { may_allocate_ = false; }

void TensorMemory::use_group(unsigned blocks) {
  if (group_ != 0 && group_ != blocks) {
    fail("cta_group::" + std::to_string(blocks) + " in a kernel that also uses cta_group::" + std::to_string(group_));
  }
  group_ = blocks;
}

void TensorMemory::check_allocated(const Range& range) const {
  if (range.lane + range.lanes > kLanes || range.column + range.columns > columns_) {
    throw Violation{FaultKind::kOutOfBounds,
                    describe(range) + "; tensor memory has 128 lanes and " + std::to_string(columns_) + " columns", -1,
                    address_of(range.lane, range.column)};
  }
  const std::uint32_t owner = owner_[range.column / kUnit];
  for (unsigned column = range.column; column < range.column + range.columns; column = (column / kUnit + 1) * kUnit) {
    if (owner_[column / kUnit] == 0) {
      throw Violation{FaultKind::kTensorMemory, "column " + std::to_string(column) + " is not allocated", -1,
                      address_of(range.lane, column)};
    }
    if (owner_[column / kUnit] != owner) {
      throw Violation{FaultKind::kTensorMemory,
                      describe(range) + " are of two allocations; the other begins at or before column " +
                          std::to_string(column),
                      -1, address_of(range.lane, column)};
    }
  }
}

AccessId TensorMemory::unordered(AccessId id, Actor pipe) const {
  for (; id != 0; id = ordering_.record(id).next) {
    const Ordering::Record& one = ordering_.record(id);
    if ((pipe == 0 || one.actor != pipe) && !ordering_.seen(one.actor, one.clock)) return id;
  }
  return 0;
}

void TensorMemory::report_race(const Cell& cell, AccessId earlier, bool earlier_writes, bool writes, unsigned part,
                               unsigned column) const {
  const Ordering::Record& one = ordering_.record(earlier);
  const std::string line = program_.where(earlier_writes ? cell.pc : one.pc);
  throw Violation{FaultKind::kRace,
                  std::string(writes ? "write" : "read") + " of tensor memory that nothing orders after the " +
                      (earlier_writes ? "write" : "read") + " that warp " + std::to_string(one.warp) + " issued" +
                      (line.empty() ? "" : " at " + line),
                  -1, address_of(part * kPart, column)};
}

template <bool writes>
void TensorMemory::use(const Range& range, AccessId access, Actor pipe) {
  const unsigned first = range.lane / kPart, last = (range.lane + range.lanes - 1) / kPart;
  Cell before;  // neighbours mostly have the same past
  AccessId reads_after = 0;
  bool is_known = false;
  for (unsigned column = range.column; column < range.column + range.columns; ++column) {
    for (unsigned part = first; part <= last; ++part) {
      Cell& cell = cells_[std::size_t{column} * kParts + part];
      if (!is_known || cell.write != before.write || cell.reads != before.reads) {
        before = cell;
        if (cell.write != access) {
          if (const AccessId other = unordered(cell.write, pipe); other != 0) {
            report_race(cell, other, true, writes, part, column);
          }
        }
        if (writes && cell.reads != access) {
          if (const AccessId other = unordered(cell.reads, pipe); other != 0) {
            report_race(cell, other, false, writes, part, column);
          }
        }
        reads_after = writes ? 0 : ordering_.add(cell.reads, access);
        is_known = true;
      }
      cell.reads = reads_after;
      if (writes) {
        cell.write = access;
        cell.pc = ordering_.pc();
      }
    }
  }
}

bool TensorMemory::will_read(const Range& range, AccessId access, Actor pipe, bool wants_values) {
  check_allocated(range);
  use<false>(range, access, pipe);
  for (unsigned lane = range.lane; lane < range.lane + range.lanes; lane = (lane / kPart + 1) * kPart) {
    const unsigned end = std::min((lane / kPart + 1) * kPart, range.lane + range.lanes);
    const auto wanted = static_cast<std::uint16_t>(((1U << (end - lane)) - 1) << lane % kPart);
    for (unsigned column = range.column; column < range.column + range.columns; ++column) {
      const Cell& cell = cells_[std::size_t{column} * kParts + lane / kPart];
      if ((cell.has_value & wanted) == wanted) continue;
      if (!wants_values) return false;
      const unsigned missing = lane / kPart * kPart + static_cast<unsigned>(__builtin_ctz(wanted & ~cell.has_value));
      throw Violation{FaultKind::kUninitializedTensor,
                      "lane " + std::to_string(missing) + ", column " + std::to_string(column) + " has no value", -1,
                      address_of(missing, column)};
    }
  }
  return true;
}

void TensorMemory::will_write(const Range& range, AccessId access, Actor pipe) {
  check_allocated(range);
  use<true>(range, access, pipe);
  for (unsigned lane = range.lane; lane < range.lane + range.lanes; lane = (lane / kPart + 1) * kPart) {
    const unsigned end = std::min((lane / kPart + 1) * kPart, range.lane + range.lanes);
    const auto written = static_cast<std::uint16_t>(((1U << (end - lane)) - 1) << lane % kPart);
    for (unsigned column = range.column; column < range.column + range.columns; ++column) {
      cells_[std::size_t{column} * kParts + lane / kPart].has_value |= written;
    }
  }
}

void TensorMemory::collect(std::vector<AccessId>& live) const {
  for (const Cell& cell : cells_) live[cell.write] = live[cell.reads] = 1;
}

void TensorMemory::replace(const std::vector<AccessId>& now) {
  for (Cell& cell : cells_) {
    cell.write = now[cell.write];
    cell.reads = now[cell.reads];
  }
}

}  // namespace msa_ops::emulator

#include "shared_memory.hpp"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "fault.hpp"

namespace msa_ops::emulator {

SharedMemory::SharedMemory(std::uint64_t base, std::size_t bytes, Ordering& ordering, const Program& program)
    : base_(base), data_(bytes), written_(bytes), cells_((bytes + 3) / 4), ordering_(ordering), program_(program) {}

void SharedMemory::forget() {
  std::fill(written_.begin(), written_.end(), static_cast<unsigned char>(0));
  std::fill(cells_.begin(), cells_.end(), Cell{});
  bytewise_.clear();
  locations_.clear();
  on_their_way_.clear();
  memos_ = {};
}

void SharedMemory::refuse(std::uint64_t address, std::size_t bytes, std::size_t alignment, const char* what,
                          int lane) const {
  const std::string access = std::string(what) + " of " + std::to_string(bytes) + " bytes of shared memory";
  if (address % alignment != 0) throw Violation{FaultKind::kMisaligned, access, lane, address};
  throw Violation{FaultKind::kOutOfBounds,
                  access + "; the block has " + std::to_string(data_.size()) + " bytes at " + std::to_string(base_), lane,
                  address};
}

void SharedMemory::want_written(std::size_t start, std::size_t bytes, int lane) const {
  if (is_written(start, bytes)) return;
  for (std::size_t i = start; i < start + bytes; ++i) {
    if (written_[i] != kWritten) {
      throw Violation{FaultKind::kUninitializedShared, kNeverWritten, lane, base_ + i};
    }
  }
}

Violation SharedMemory::mistake(const Cell& cell, AccessId earlier, Ordering::Verdict verdict, std::size_t at, bool writes,
                                bool strong, bool asynchronous, bool earlier_writes, int lane) const {
  if (verdict == Ordering::Verdict::kMbarrier) {
    return {FaultKind::kMbarrier,
            std::string(writes ? "write to" : "read of") + " bytes that are an mbarrier; it was not invalidated", lane,
            base_ + at};
  }
  const Ordering::Record& one = verdict == Ordering::Verdict::kRace ? ordering_.culprit(earlier, strong)
                                                                    : ordering_.record(earlier);
  const std::string line = program_.where(earlier_writes ? cell.pc : one.pc);
  std::string other = std::string(one.asynchronous ? "the asynchronous " : "the ") +
                      (earlier_writes ? "write" : "read") + (one.asynchronous ? " that warp " : " of warp ") +
                      std::to_string(one.warp) + (one.asynchronous ? " issued" : "");
  if (!line.empty()) other += (earlier_writes || one.asynchronous ? " at " : " near ") + line;
  const std::string what = std::string(asynchronous ? "asynchronous " : "") + (writes ? "write" : "read");
  if (verdict == Ordering::Verdict::kUnfenced) {
    return {FaultKind::kProxy, what + " after " + other + " without fence.proxy.async between them", lane, base_ + at};
  }
  return {FaultKind::kRace, what + " that nothing orders after " + other, lane, base_ + at};
}

bool SharedMemory::leaves_doubt(AccessId earlier, Ordering::Verdict verdict, std::size_t at, std::size_t bytes) const {
  return verdict == Ordering::Verdict::kRace && ordering_.plain(earlier) && is_written(at, bytes);
}

bool SharedMemory::sends_the_same(AccessId earlier, std::size_t at, std::size_t bytes) const {
  if (sending_ == nullptr || !ordering_.of_same_instruction(earlier)) return false;
  const std::byte* const value = sending_->source + (at - sending_->start);
  bool pending = false;
  for (const Sent& other : on_their_way_) {
    if (at < other.start || at + bytes > other.start + other.bytes) continue;
    pending = true;
    if (std::memcmp(other.source + (at - other.start), value, bytes) != 0) return false;
  }
  return pending || (is_written(at, bytes) && std::memcmp(&data_[at], value, bytes) == 0);
}

template <bool writes, bool stores>
inline void SharedMemory::use_cell(Cell& cell, std::size_t at, std::size_t bytes, AccessId access, bool strong,
                                   bool asynchronous, int lane) {
  using Verdict = Ordering::Verdict;
  bool doubtful = false;
  const auto judged = [&](AccessId earlier, Verdict verdict, bool earlier_writes) {
    if (verdict == Verdict::kOrdered) return;
    if (writes && verdict == Verdict::kRace && earlier_writes && sends_the_same(earlier, at, bytes)) {
      doubtful = true;
      return;
    }
    Violation found = mistake(cell, earlier, verdict, at, writes, strong, asynchronous, earlier_writes, lane);
    // Who stores after another store that it knows is not one of several that store the same.
    const bool alone = !earlier_writes && !doubtful;
    if (!stores || strong || alone || !leaves_doubt(earlier, verdict, at, bytes)) throw Violation(std::move(found));
    ordering_.same_values().doubt(&data_[at], &written_[at], kWritten, bytes, std::move(found));
    doubtful = true;
  };
  if (cell.write != 0 && cell.write != access) {
    judged(cell.write,
           writes ? ordering_.judge(cell.write, strong, asynchronous, true)
                  : ordering_.judge_value(cell.write, strong, asynchronous),
           true);
  }
  if (writes) {
    if (cell.reads != 0 && cell.reads != access) {
      judged(cell.reads, ordering_.judge(cell.reads, strong, asynchronous, false), false);
    }
    // Atomics, and stores of the same value, do not order each other: whoever writes after all must have seen all.
    const bool beside = doubtful || (strong && cell.write != 0 && ordering_.record(cell.write).strong);
    cell.write = beside ? ordering_.add(cell.write, access) : access;
    if (!doubtful) cell.reads = 0;
    cell.pc = ordering_.pc();
  } else if (cell.reads != access) {
    cell.reads = ordering_.add(cell.reads, access);
  }
}

template <bool writes, bool stores>
void SharedMemory::use(std::size_t start, std::size_t bytes, AccessId access, bool strong, bool asynchronous,
                       int lane) {
  using Verdict = Ordering::Verdict;
  if (start % 4 == 0 && bytes % 4 == 0) {
    Memo& memo = memos_[writes ? 1 : 0];
    const std::uint32_t pc = ordering_.pc();
    for (std::size_t word = start / 4; word < (start + bytes) / 4; ++word) {
      Cell& cell = cells_[word];
      if (cell.write == kBytewise) {
        for (std::size_t i = 0; i < 4; ++i) {
          use_cell<writes, stores>(bytewise_.at(word)[i], word * 4 + i, 1, access, strong, asynchronous, lane);
        }
        if (writes && ordering_.same_values().empty()) {
          bytewise_.erase(word);
          cell = {access, 0, pc};
        }
      } else if (memo.access == access && cell.write == memo.before.write && cell.reads == memo.before.reads) {
        cell.reads = memo.after.reads;
        if (writes) cell.write = memo.after.write, cell.pc = pc;
      } else {
        const Cell before = cell;
        use_cell<writes, stores>(cell, word * 4, 4, access, strong, asynchronous, lane);
        if (ordering_.same_values().empty() && sending_ == nullptr) memo = {access, before, cell};
      }
    }
    return;
  }
  for (std::size_t at = start; at < start + bytes; ++at) {
    Cell& cell = cells_[at / 4];
    if (cell.write != kBytewise) {
      // The whole word has one past; keep it so if this access changes nothing.
      if (cell.write == access && (writes ? cell.reads == 0 : true) && writes) continue;
      if (!writes && cell.reads == access &&
          ordering_.judge_value(cell.write, strong, asynchronous) == Verdict::kOrdered) {
        continue;
      }
      bytewise_[at / 4] = {cell, cell, cell, cell};
      cell.write = kBytewise;
    }
    use_cell<writes, stores>(bytewise_.at(at / 4)[at % 4], at, 1, access, strong, asynchronous, lane);
  }
}

const std::byte* SharedMemory::read(std::uint64_t address, std::size_t bytes, int lane, Strength strength) {
  const std::size_t start = offset(address, bytes, bytes, "read", lane);
  const bool strong = strength == Strength::kStrong;
  note_remote();
  use<false>(start, bytes, ordering_.own(strong), strong, false, lane);
  want_written(start, bytes, lane);
  return &data_[start];
}

const std::byte* SharedMemory::read(std::uint64_t address, std::size_t bytes, int lane, Strength strength,
                                    bool& written) {
  const std::size_t start = offset(address, bytes, bytes, "read", lane);
  const bool strong = strength == Strength::kStrong;
  note_remote();
  use<false>(start, bytes, ordering_.own(strong), strong, false, lane);
  written = is_written(start, bytes);
  return &data_[start];
}

const std::byte* SharedMemory::read_run(std::uint64_t address, std::size_t bytes, std::size_t alignment) {
  const std::size_t start = offset(address, bytes, alignment, "read", -1);
  use<false>(start, bytes, ordering_.own(false), false, false, -1);
  want_written(start, bytes, -1);
  return &data_[start];
}

std::byte* SharedMemory::write_run(std::uint64_t address, std::size_t bytes, std::size_t alignment) {
  const std::size_t start = offset(address, bytes, alignment, "write", -1);
  use<true>(start, bytes, ordering_.own(false), false, false, -1);
  std::memset(&written_[start], 1, bytes);
  return &data_[start];
}

std::optional<std::uint64_t> SharedMemory::first_unwritten(std::uint64_t address, std::size_t bytes) const {
  const std::size_t start = offset(address, bytes, 1, "read", -1);
  if (is_written(start, bytes)) return std::nullopt;
  for (std::size_t i = start; i < start + bytes; ++i) {
    if (written_[i] != kWritten) return base_ + i;
  }
  return std::nullopt;
}

void SharedMemory::unwrite(std::uint64_t address, std::size_t bytes) {
  std::memset(&written_[offset(address, bytes, 1, "write", -1)], kWithoutValue, bytes);
}

std::byte* SharedMemory::write(std::uint64_t address, std::size_t bytes, int lane, Strength strength) {
  const std::size_t start = offset(address, bytes, bytes, "write", lane);
  const bool strong = strength == Strength::kStrong;
  note_remote();
  use<true, true>(start, bytes, ordering_.own(strong), strong, false, lane);
  std::memset(&written_[start], 1, bytes);
  return &data_[start];
}

void SharedMemory::want_known(std::size_t start, std::size_t bytes, int lane) const {
  if (std::find(&written_[start], &written_[start] + bytes, kWithoutValue) == &written_[start] + bytes) {
    want_written(start, bytes, lane);
  }
}

Knowledge& SharedMemory::part_of(std::vector<Part>& parts, unsigned block, bool is_wide) {
  for (Part& part : parts) {
    if (part.block == block && part.is_wide == is_wide) return part.known;
  }
  parts.push_back({block, is_wide});
  return parts.back().known;
}

std::byte* SharedMemory::update(std::uint64_t address, std::size_t bytes, int lane, bool reads) {
  const std::size_t start = offset(address, bytes, bytes, "atomic", lane);
  if (reads) want_known(start, bytes, lane);
  note_remote();
  use<true>(start, bytes, ordering_.own(true), true, false, lane);
  return &data_[start];
}

void SharedMemory::will_update(std::uint64_t address, std::size_t bytes, std::size_t alignment, AccessId access,
                               int lane) {
  const std::size_t start = offset(address, bytes, alignment, "asynchronous reduction", lane);
  remote_use_.note_work(access);
  use<true>(start, bytes, access, true, ordering_.record(access).asynchronous, lane);
  want_known(start, bytes, lane);
}

const std::byte* SharedMemory::will_read(std::uint64_t address, std::size_t bytes, std::size_t alignment,
                                         AccessId access, int lane) {
  const std::size_t start = offset(address, bytes, alignment, "asynchronous read", lane);
  // What the block itself sends to another one may outlive it, as its stores may: an H200 reads it all the same.
  if (remote_use_.is_remote(ordering_.current())) remote_use_.note_work(access);
  use<false>(start, bytes, access, false, ordering_.record(access).asynchronous, lane);
  want_written(start, bytes, lane);
  return &data_[start];
}

void SharedMemory::will_write(std::uint64_t address, std::size_t bytes, std::size_t alignment, AccessId access,
                              int lane) {
  const std::size_t start = offset(address, bytes, alignment, "asynchronous write", lane);
  remote_use_.note_work(access);
  use<true>(start, bytes, access, false, ordering_.record(access).asynchronous, lane);
}

void SharedMemory::will_be_sent(std::uint64_t address, std::size_t bytes, AccessId access, int lane,
                                const std::byte* source) {
  const Sent one{offset(address, bytes, 16, "asynchronous write", lane), bytes, source};
  remote_use_.note_work(access);
  sending_ = &one;
  try {
    use<true>(one.start, bytes, access, false, true, lane);
  } catch (...) {
    sending_ = nullptr;
    throw;
  }
  sending_ = nullptr;
  on_their_way_.push_back(one);
}

void SharedMemory::sent(std::uint64_t address, std::size_t bytes, const std::byte* source) {
  mark_written(address, bytes);
  const std::size_t start = offset(address, bytes, 1, "write", -1);
  const auto found = std::find_if(on_their_way_.begin(), on_their_way_.end(), [&](const Sent& one) {
    return one.start == start && one.bytes == bytes && one.source == source;
  });
  if (found != on_their_way_.end()) on_their_way_.erase(found);
}

void SharedMemory::mark_written(std::uint64_t address, std::size_t bytes) {
  std::memset(&written_[offset(address, bytes, 1, "write", -1)], 1, bytes);
}

void SharedMemory::become_mbarrier(std::uint64_t address, int lane) {
  const std::size_t start = offset(address, 8, 8, "mbarrier", lane);
  use<true>(start, 8, ordering_.own(false), false, false, lane);
  std::memset(&written_[start], 1, 8);
  for (std::size_t word = start / 4; word < start / 4 + 2; ++word) cells_[word].write = ordering_.of_mbarrier();
}

void SharedMemory::cease_mbarrier(std::uint64_t address) {
  const std::size_t start = offset(address, 8, 8, "mbarrier", -1);
  std::memset(&written_[start], 0, 8);
  for (std::size_t word = start / 4; word < start / 4 + 2; ++word) {
    cells_[word] = {ordering_.own(false), 0, ordering_.pc()};
  }
}

void SharedMemory::collect(std::vector<AccessId>& live) const {
  const auto note = [&](const Cell& cell) {
    if (cell.write != kBytewise) live[cell.write] = 1;
    live[cell.reads] = 1;
  };
  for (const Cell& cell : cells_) note(cell);
  for (const auto& [word, cells] : bytewise_) {
    for (const Cell& cell : cells) note(cell);
  }
}

void SharedMemory::replace(const std::vector<AccessId>& now) {
  const auto change = [&](Cell& cell) {
    if (cell.write != kBytewise) cell.write = now[cell.write];
    cell.reads = now[cell.reads];
  };
  memos_ = {};
  for (Cell& cell : cells_) change(cell);
  for (auto& [word, cells] : bytewise_) {
    for (Cell& cell : cells) change(cell);
  }
}

}  // namespace msa_ops::emulator

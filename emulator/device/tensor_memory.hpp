// Tensor memory of one thread block: 128 lanes of 32-bit columns, allocated by columns, which knows what of it has a
// value and by whom it was last used.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ordering.hpp"
#include "program.hpp"

namespace msa_ops::emulator {

class TensorMemory {
 public:
  static constexpr unsigned kLanes = 128;
  static constexpr unsigned kUnit = 32;  // columns that an allocation is a multiple of

  TensorMemory(unsigned columns, Ordering& ordering, const Program& program);

  void start();         // at the start of a block: nothing is allocated
  void finish() const;  // at its end: Violation for what is still allocated

  unsigned columns() const { return columns_; }

  // ---- allocation
  // The first column of so many free ones beside each other, or -1 if there are none now. Violation if the block has
  // given up its right to allocate. `pc`: the instruction that asks.
  int allocate(unsigned columns, std::uint32_t pc);
  // The same in this block and its peer at once: both ask, and go on when both have asked. -1: not yet.
  int allocate_with(TensorMemory& peer, unsigned columns, std::uint32_t pc);
  void deallocate(unsigned first, unsigned columns);
  // What it holds, and how many columns beside each other are free: "128 of 512 columns are free, 64 in a row; ..."
  std::string describe_allocations() const;
  unsigned wanted() const { return wanted_; }
  void relinquish();
  void use_group(unsigned blocks);  // Violation if the block has used groups of another size

  // ---- access: a range of lanes by a range of columns. `pipe` names the actor of the access's own pipeline, whose
  // earlier work it follows without more ado; 0: none.
  struct Range {
    unsigned lane, lanes, column, columns;
  };
  // Violation where something has no value; or, without `wants_values`, false.
  bool will_read(const Range& range, AccessId access, Actor pipe, bool wants_values = true);
  void will_write(const Range& range, AccessId access, Actor pipe);

  bool has_value(unsigned lane, unsigned column) const {
    return (cells_[std::size_t{column} * kParts + lane / kPart].has_value >> lane % kPart & 1) != 0;
  }
  // What was written there has no value.
  void unwrite(unsigned lane, unsigned column) {
    cells_[std::size_t{column} * kParts + lane / kPart].has_value &= static_cast<std::uint16_t>(~(1U << lane % kPart));
  }

  std::uint32_t* lane(unsigned lane) { return data_.data() + std::size_t{lane} * columns_; }

  void collect(std::vector<AccessId>& live) const;
  void replace(const std::vector<AccessId>& now);

 private:
  static constexpr unsigned kPart = 16;  // lanes that have one history
  static constexpr unsigned kParts = kLanes / kPart;
  struct Cell {
    AccessId write = 0;
    AccessId reads = 0;
    std::uint32_t pc = 0;         // of the last write
    std::uint16_t has_value = 0;  // a bit a lane
  };

  template <bool writes>
  void use(const Range& range, AccessId access, Actor pipe);
  // The first access of the set that neither the present warp nor the pipeline follows; 0: none.
  AccessId unordered(AccessId id, Actor pipe) const;
  void check_allocated(const Range& range) const;
  [[noreturn]] void report_race(const Cell& cell, AccessId earlier, bool earlier_writes, bool writes, unsigned part,
                                unsigned column) const;

  unsigned columns_;
  std::vector<std::uint32_t> data_;
  std::vector<Cell> cells_;              // [column][part]
  std::vector<std::uint32_t> owner_;     // of each unit of columns: the allocation, 0: free
  std::vector<std::uint32_t> allocations_;  // the instruction that made each, from the first on
  bool may_allocate_ = true;
  unsigned group_ = 0;
  unsigned wanted_ = 0;  // columns that the block asked for and its peer has not
  int granted_ = -1;     // first column of what the peer has allocated for both
  Ordering& ordering_;
  const Program& program_;
};

// "lanes 0 to 31, columns 64 to 95"
std::string describe(const TensorMemory::Range& range);

}  // namespace msa_ops::emulator

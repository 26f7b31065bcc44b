// Sparse operands A of mma.sp and wgmma.mma_async.sp: where the elements that are kept stand in the whole row.
//
// A row's elements come in chunks of 4 (8 of four bits, 2 of TF32), half of which are kept. Four bits a chunk say which:
// two indices of two bits, the first kept element's in the lower ones. With elements of four bits an index is that of a
// pair; with TF32 0b0100 is the first element and 0b1110 the second. The lanes of a group of four, which hold rows
// g and g + 8, share the words: with 4 chunks a row one lane's word is for both rows (g in the lower half), with 8 two
// lanes have 4 chunks each of both rows, or of integers all 8 of one row, the second lane of g + 8; with 16 all four have 8
// chunks of one row, odd lanes of g + 8, lanes 2 and 3 of the upper chunks. NVIDIA's PTX manual, "Sparse matrix storage";
// an H200 does so.
#pragma once

#include <cstdint>
#include <vector>

#include "../matrix/formats.hpp"
#include "warp.hpp"

namespace msa_ops::emulator::ptx {

// What each nibble of metadata says, however it is laid out.
class SparseRows {
 public:
  enum class Rule { kAny, kAscending, kTensorMemory };  // which pairs of indices mean something

  SparseRows(matrix::Element element, unsigned rows, unsigned k);

  unsigned chunks() const { return k_ / chunk_; }  // nibbles of a row
  // Violation of the lane for a nibble that means nothing.
  void set(unsigned row, unsigned chunk, unsigned nibble, Rule rule, unsigned lane);

  // c [rows][n] += a [rows][k / 2] * the rows of b [k][n] that belong to them.
  void multiply_add(const float* a, const float* b, float* c, unsigned n, const std::uint32_t* order) const;
  void multiply_add(const std::int32_t* a, const std::int32_t* b, std::int32_t* c, unsigned n, bool saturate) const;

 private:
  template <typename Number>
  const Number* rows_of(unsigned row, const Number* b, unsigned n, std::vector<Number>& memory) const;

  matrix::Element element_;
  unsigned rows_, k_, chunk_, kept_;   // kept: elements of a row
  std::vector<std::uint32_t> places_;  // [rows][kept]: in the whole row
};

// Of one warp's 16 rows with k elements each, of which k / 2 are kept, out of registers. Throws a Violation for a selector or
// metadata that the instruction does not take, or metadata without a value. ordered: indices must ascend.
class Sparsity : public SparseRows {
 public:
  static constexpr unsigned kRows = 16;

  Sparsity(const PtxWarp& warp, matrix::Element element, unsigned k, bool ordered, const Operand& metadata,
           const Operand& selector);

  // How many selectors there are: the lanes that give metadata are one of so many groups.
  static unsigned selectors(matrix::Element element, unsigned k);
};

}  // namespace msa_ops::emulator::ptx

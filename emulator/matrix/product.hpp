// Products of small matrices as matrix units make them, whatever the instruction set.
//
// Sums are of fp32. For each element of C the products of A and B are added one after the other, k ascending, each
// addition rounded to nearest even. A product is exact wherever fp32 holds it: always for formats of 16 bits and less
// but bf16, for bf16 and TF32 unless it overflows or is subnormal, in which case it is rounded to fp32 first.
// Chips add in other orders and some with fewer bits, so a correct kernel must not depend on this one; `Order` is for
// tests of that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace msa_ops::emulator::matrix {

// In which order the products of one instruction are added. By default k ascending; with a seed other than 0 another
// permutation for every instruction.
class Order {
 public:
  explicit Order(std::uint64_t seed = 0) : state_(seed) {}
  // k indices, or nullptr for ascending ones.
  const std::uint32_t* next(std::size_t k);

 private:
  std::uint64_t state_;
  std::vector<std::uint32_t> permutation_;
};

struct Extent {
  std::size_t m, n, k;
};

// c [m][n] += a [m][k] * b [k][n], all row major and without gaps. NaN results are 0x7fffffff.
void multiply_add(const float* a, const float* b, float* c, const Extent& extent, const std::uint32_t* order = nullptr);
// The same with products of fp64 that are exact, for scaled operands beyond fp32's range; sums are of fp32.
void multiply_add(const double* a, const double* b, float* c, const Extent& extent,
                  const std::uint32_t* order = nullptr);
// fp64 in all: one fused multiply-add a product; NaN are handed on.
void multiply_add(const double* a, const double* b, double* c, const Extent& extent,
                  const std::uint32_t* order = nullptr);
// Integers: the exact sum, which wraps around or saturates at the ends of int32.
void multiply_add(const std::int32_t* a, const std::int32_t* b, std::int32_t* c, const Extent& extent, bool saturate);

// out [columns][rows] = in [rows][columns].
void transpose(const float* in, std::size_t rows, std::size_t columns, float* out);
void transpose(const std::int32_t* in, std::size_t rows, std::size_t columns, std::int32_t* out);

}  // namespace msa_ops::emulator::matrix

#include "product.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

// The loops once for every vector width; arithmetic is not contracted, so that all of them give the same bits.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define MSA_OPS_VECTOR_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define MSA_OPS_VECTOR_CLONES
#endif

namespace msa_ops::emulator::matrix {
namespace {

template <typename A, typename C>
inline __attribute__((always_inline)) void sum_products(const A* a, const A* b, C* c, const Extent& extent,
                                                        const std::uint32_t* order) {
  for (std::size_t row = 0; row < extent.m; ++row) {
    C* sums = c + row * extent.n;
    for (std::size_t i = 0; i < extent.k; ++i) {
      const std::size_t at = order != nullptr ? order[i] : i;
      const A factor = a[row * extent.k + at];
      const A* products = b + at * extent.n;
      for (std::size_t column = 0; column < extent.n; ++column) {
        sums[column] = static_cast<C>(sums[column] + factor * products[column]);
      }
    }
  }
}

// The width of one warp's tile, known to the compiler.
inline __attribute__((always_inline)) void sum_products_of_8(const float* a, const float* b, float* c, std::size_t m,
                                                             std::size_t k, const std::uint32_t* order) {
  for (std::size_t row = 0; row < m; ++row) {
    float sums[8];
    std::memcpy(sums, c + row * 8, sizeof(sums));
    for (std::size_t i = 0; i < k; ++i) {
      const std::size_t at = order != nullptr ? order[i] : i;
      const float factor = a[row * k + at];
      for (std::size_t column = 0; column < 8; ++column) sums[column] += factor * b[at * 8 + column];
    }
    std::memcpy(c + row * 8, sums, sizeof(sums));
  }
}

// A block of 4 rows by 32 columns whose sums stay in registers.
inline __attribute__((always_inline)) void sum_block(const float* a, const float* b, float* c, const Extent& extent,
                                                     const std::uint32_t* order) {
  constexpr std::size_t kRows = 4, kColumns = 32;
  float sums[kRows][kColumns];
  for (std::size_t row = 0; row < kRows; ++row) std::memcpy(sums[row], c + row * extent.n, sizeof(sums[row]));
  for (std::size_t i = 0; i < extent.k; ++i) {
    const std::size_t at = order != nullptr ? order[i] : i;
    const float* products = b + at * extent.n;
    for (std::size_t row = 0; row < kRows; ++row) {
      const float factor = a[row * extent.k + at];
      for (std::size_t column = 0; column < kColumns; ++column) sums[row][column] += factor * products[column];
    }
  }
  for (std::size_t row = 0; row < kRows; ++row) std::memcpy(c + row * extent.n, sums[row], sizeof(sums[row]));
}

inline __attribute__((always_inline)) void sum_in_blocks(const float* a, const float* b, float* c, const Extent& extent,
                                                         const std::uint32_t* order) {
  for (std::size_t row = 0; row < extent.m; row += 4) {
    for (std::size_t column = 0; column < extent.n; column += 32) {
      sum_block(a + row * extent.k, b + column, c + row * extent.n + column, extent, order);
    }
  }
}

MSA_OPS_VECTOR_CLONES void add_floats(const float* a, const float* b, float* c, const Extent& extent,
                                      const std::uint32_t* order) {
  if (extent.n == 8) sum_products_of_8(a, b, c, extent.m, extent.k, order);
  else if (extent.n % 32 == 0 && extent.m % 4 == 0) sum_in_blocks(a, b, c, extent, order);
  else sum_products(a, b, c, extent, order);
}

MSA_OPS_VECTOR_CLONES void add_wide_floats(const double* a, const double* b, float* c, const Extent& extent,
                                           const std::uint32_t* order) {
  sum_products(a, b, c, extent, order);
}

MSA_OPS_VECTOR_CLONES void add_integers(const std::int32_t* a, const std::int32_t* b, std::int64_t* c,
                                        const Extent& extent) {
  for (std::size_t row = 0; row < extent.m; ++row) {
    for (std::size_t k = 0; k < extent.k; ++k) {
      const std::int32_t factor = a[row * extent.k + k];
      for (std::size_t column = 0; column < extent.n; ++column) {
        c[row * extent.n + column] += factor * b[k * extent.n + column];  // 16 bits at most
      }
    }
  }
}

template <typename T>
void transpose_in_tiles(const T* in, std::size_t rows, std::size_t columns, T* out) {
  constexpr std::size_t kTile = 16;
  for (std::size_t top = 0; top < rows; top += kTile) {
    for (std::size_t left = 0; left < columns; left += kTile) {
      const std::size_t bottom = std::min(top + kTile, rows), right = std::min(left + kTile, columns);
      for (std::size_t row = top; row < bottom; ++row) {
        for (std::size_t column = left; column < right; ++column) out[column * rows + row] = in[row * columns + column];
      }
    }
  }
}

template <typename T, typename Bits>
void make_nans_equal(T* c, std::size_t count, Bits pattern) {
  T nan;
  std::memcpy(&nan, &pattern, sizeof(nan));
  for (std::size_t i = 0; i < count; ++i) c[i] = c[i] == c[i] ? c[i] : nan;
}

}  // namespace

const std::uint32_t* Order::next(std::size_t k) {
  if (state_ == 0) return nullptr;
  permutation_.resize(k);
  std::iota(permutation_.begin(), permutation_.end(), 0U);
  for (std::size_t left = k; left > 1; --left) {
    state_ = state_ * 6364136223846793005U + 1442695040888963407U;
    if (state_ == 0) state_ = 1;
    std::swap(permutation_[left - 1], permutation_[(state_ >> 33) % left]);
  }
  return permutation_.data();
}

void multiply_add(const float* a, const float* b, float* c, const Extent& extent, const std::uint32_t* order) {
  add_floats(a, b, c, extent, order);
  make_nans_equal(c, extent.m * extent.n, std::uint32_t{0x7fffffff});
}

void multiply_add(const double* a, const double* b, float* c, const Extent& extent, const std::uint32_t* order) {
  add_wide_floats(a, b, c, extent, order);
  make_nans_equal(c, extent.m * extent.n, std::uint32_t{0x7fffffff});
}

namespace {

// Of several NaN that of b is handed on, else that of the sum, else that of a, as by an H200.
double fused(double a, double b, double sum) {
  if (b != b) return b + b;
  if (sum != sum) return sum + sum;
  return a != a ? a + a : std::fma(a, b, sum);
}

}  // namespace

void multiply_add(const double* a, const double* b, double* c, const Extent& extent, const std::uint32_t* order) {
  for (std::size_t row = 0; row < extent.m; ++row) {
    for (std::size_t i = 0; i < extent.k; ++i) {
      const std::size_t at = order != nullptr ? order[i] : i;
      for (std::size_t column = 0; column < extent.n; ++column) {
        double& sum = c[row * extent.n + column];
        sum = fused(a[row * extent.k + at], b[at * extent.n + column], sum);
      }
    }
  }
}

void multiply_add(const std::int32_t* a, const std::int32_t* b, std::int32_t* c, const Extent& extent, bool saturate) {
  const std::size_t count = extent.m * extent.n;
  std::vector<std::int64_t> sums(c, c + count);
  add_integers(a, b, sums.data(), extent);
  using Limits = std::numeric_limits<std::int32_t>;
  for (std::size_t i = 0; i < count; ++i) {
    if (saturate) sums[i] = std::clamp<std::int64_t>(sums[i], Limits::min(), Limits::max());
    c[i] = static_cast<std::int32_t>(static_cast<std::uint32_t>(sums[i]));
  }
}

void transpose(const float* in, std::size_t rows, std::size_t columns, float* out) {
  transpose_in_tiles(in, rows, columns, out);
}

void transpose(const std::int32_t* in, std::size_t rows, std::size_t columns, std::int32_t* out) {
  transpose_in_tiles(in, rows, columns, out);
}

}  // namespace msa_ops::emulator::matrix

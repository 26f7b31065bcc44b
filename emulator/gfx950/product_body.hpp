// The arithmetic of matrix instructions for one width of vectors. The including file names the width, kWidth, and is
// compiled for a processor that has it; therefore nothing of the standard library's templates may be used here.
#include <cstdint>
#include <cstring>

#if defined(__FMA__)
#include <immintrin.h>
#endif

#include "product.hpp"

namespace msa_ops::emulator::gfx950 {
namespace {

template <unsigned width>
struct Vectors {
  typedef float F __attribute__((vector_size(width * 4)));
  typedef std::uint32_t U __attribute__((vector_size(width * 4)));
  typedef std::int32_t I __attribute__((vector_size(width * 4)));
};

template <typename To, typename From>
inline To same_bits(const From& from) {
  static_assert(sizeof(To) == sizeof(From), "vectors of the same width");
  To made;
  std::memcpy(&made, &from, sizeof(To));
  return made;
}

// Elements in the low bits of each lane, as fp32. Numbers below the normal ones are integers times a power of two.
template <typename V, unsigned exponent, unsigned mantissa, int bias>
inline typename V::F small_float(const typename V::U& codes) {
  using U = typename V::U;
  constexpr std::uint32_t sign = 1U << (exponent + mantissa);
  constexpr std::uint32_t least = static_cast<std::uint32_t>(127 + 1 - bias - static_cast<int>(mantissa)) << 23;
  const U magnitude = codes & (sign - 1);
  const U normal = (magnitude << (23 - mantissa)) + (static_cast<std::uint32_t>(127 - bias) << 23);
  float unit;
  std::memcpy(&unit, &least, sizeof(unit));
  const auto counted = __builtin_convertvector(same_bits<typename V::I>(magnitude), typename V::F) * unit;
  const U below = same_bits<U>(magnitude < (1U << mantissa));
  const U bits = (normal & ~below) | (same_bits<U>(counted) & below);
  return same_bits<typename V::F>(bits | (codes & sign) << (31 - exponent - mantissa));
}

template <typename V>
inline typename V::F with_nan(const typename V::F& value, const typename V::U& is_nan) {
  using U = typename V::U;
  return same_bits<typename V::F>((same_bits<U>(value) & ~is_nan) | (is_nan & 0x7fc00000U));
}

template <typename V, Element element>
inline typename V::F decoded(const typename V::U& codes) {
  using U = typename V::U;
  if constexpr (element == Element::kF32) {
    return same_bits<typename V::F>(codes);
  } else if constexpr (element == Element::kBf16) {
    return same_bits<typename V::F>(codes << 16);
  } else if constexpr (element == Element::kF16) {
    const auto finite = small_float<V, 5, 10, 15>(codes);
    const U magnitude = codes & 0x7fffU;
    const U special = same_bits<U>(magnitude >= 0x7c00U);
    const U whole = (codes & 0x8000U) << 16 | 0x7f800000U | (magnitude & 0x3ffU) << 13;
    return same_bits<typename V::F>((same_bits<U>(finite) & ~special) | (whole & special));
  } else if constexpr (element == Element::kE4m3) {
    return with_nan<V>(small_float<V, 4, 3, 7>(codes), same_bits<U>((codes & 0x7fU) == 0x7fU));
  } else if constexpr (element == Element::kE5m2) {
    const auto finite = small_float<V, 5, 2, 15>(codes);
    const U magnitude = codes & 0x7fU;
    const U infinite = same_bits<U>(magnitude == 0x7cU);
    const U whole = (codes & 0x80U) << 24 | 0x7f800000U;
    const auto value = same_bits<typename V::F>((same_bits<U>(finite) & ~infinite) | (whole & infinite));
    return with_nan<V>(value, same_bits<U>(magnitude > 0x7cU));
  } else if constexpr (element == Element::kE2m3) {
    return small_float<V, 2, 3, 1>(codes);
  } else if constexpr (element == Element::kE3m2) {
    return small_float<V, 3, 2, 3>(codes);
  } else if constexpr (element == Element::kE2m1) {
    return small_float<V, 2, 1, 1>(codes);
  } else {
    return __builtin_convertvector(same_bits<typename V::I>(codes << 24) >> 24, typename V::F);
  }
}

constexpr unsigned bits_of(Element element) {
  switch (element) {
    case Element::kF32: return 32;
    case Element::kF16: case Element::kBf16: return 16;
    case Element::kE2m3: case Element::kE3m2: return 6;
    case Element::kE2m1: return 4;
    default: return 8;
  }
}

template <unsigned width, Element element>
void unpack_lines(const OperandPlace& place, unsigned k_count, float* out) {
  using V = Vectors<width>;
  using U = typename V::U;
  constexpr unsigned bits = bits_of(element);
  const unsigned count = place.dwords * 32 / bits, run = place.run;
  for (unsigned group = 0; group < place.groups; ++group) {
    for (unsigned first = 0; first < place.lines; first += width) {
      const std::uint32_t* const lanes = place.rows + group * place.lines + first;
      for (unsigned e = 0; e < count; ++e) {
        const unsigned k = e / run * (k_count / 2) + group * run + e % run;
        const unsigned bit = e * bits;
        U codes;
        std::memcpy(&codes, lanes + bit / 32 * 64, sizeof(codes));
        codes >>= bit % 32;
        if (bits == 6 && bit % 32 > 26) {
          U rest;
          std::memcpy(&rest, lanes + (bit / 32 + 1) * 64, sizeof(rest));
          codes |= rest << (32 - bit % 32);
        }
        if (bits < 32) codes &= bits == 32 ? ~0U : (1U << (bits % 32)) - 1;
        auto value = decoded<V, element>(codes);
        if (place.scales != nullptr) {
          typename V::F scale;
          std::memcpy(&scale, place.scales + k / 32 * place.lines + first, sizeof(scale));
          value *= scale;
        }
        std::memcpy(out + k * place.lines + first, &value, sizeof(value));
      }
    }
  }
}

template <unsigned width>
void unpack_elements(const OperandPlace& place, unsigned k, float* out) {
  switch (place.element) {
    case Element::kF32: unpack_lines<width, Element::kF32>(place, k, out); return;
    case Element::kF16: unpack_lines<width, Element::kF16>(place, k, out); return;
    case Element::kBf16: unpack_lines<width, Element::kBf16>(place, k, out); return;
    case Element::kE4m3: unpack_lines<width, Element::kE4m3>(place, k, out); return;
    case Element::kE5m2: unpack_lines<width, Element::kE5m2>(place, k, out); return;
    case Element::kE2m3: unpack_lines<width, Element::kE2m3>(place, k, out); return;
    case Element::kE3m2: unpack_lines<width, Element::kE3m2>(place, k, out); return;
    case Element::kE2m1: unpack_lines<width, Element::kE2m1>(place, k, out); return;
    case Element::kI8: unpack_lines<width, Element::kI8>(place, k, out); return;
  }
}

void unpack(const OperandPlace& place, unsigned k, float* out) {
  if (place.lines == 4) unpack_elements<4>(place, k, out);
  else unpack_elements<kWidth>(place, k, out);
}

// sum + a * b, rounded once: where products are exact, that is what two operations give.
template <bool exact, typename F>
inline void add_product(F& sum, float a, const F& b) {
#if defined(__FMA__)
  F factor = a - F{};
  if constexpr (sizeof(F) == 16) sum = _mm_fmadd_ps(factor, b, sum);
  else if constexpr (sizeof(F) == 32) sum = _mm256_fmadd_ps(factor, b, sum);
#if defined(__AVX512F__)
  else sum = _mm512_fmadd_ps(factor, b, sum);
#endif
#else
  if constexpr (exact) {
    sum += a * b;
  } else {
    for (unsigned i = 0; i < sizeof(F) / 4; ++i) sum[i] = __builtin_fmaf(a, b[i], sum[i]);
  }
#endif
}

// Blocks of sums that stay in registers.
template <unsigned width, unsigned n, unsigned rows, unsigned vectors, bool exact>
void multiply_blocks(const float* a, const float* b, float* c, unsigned k_count) {
  using F = typename Vectors<width>::F;
  for (unsigned i = 0; i < n; i += rows) {
    for (unsigned j = 0; j < n; j += vectors * width) {
      F sums[rows][vectors];
      for (unsigned r = 0; r < rows; ++r) std::memcpy(sums[r], c + (i + r) * n + j, sizeof(sums[r]));
      for (unsigned k = 0; k < k_count; ++k) {
        F columns[vectors];
        std::memcpy(columns, b + k * n + j, sizeof(columns));
#pragma GCC unroll 16
        for (unsigned r = 0; r < rows; ++r) {
#pragma GCC unroll 4
          for (unsigned v = 0; v < vectors; ++v) add_product<exact>(sums[r][v], a[k * n + i + r], columns[v]);
        }
      }
      for (unsigned r = 0; r < rows; ++r) std::memcpy(c + (i + r) * n + j, sums[r], sizeof(sums[r]));
    }
  }
}

template <bool exact>
void multiply_any(unsigned n, const float* a, const float* b, float* c, unsigned k) {
  constexpr unsigned vectors = kWidth == 16 ? 1 : 2, rows = kWidth == 16 ? 16 : 4;
  if (n == 4) multiply_blocks<4, 4, 4, 1, exact>(a, b, c, k);
  else if (n == 16) multiply_blocks<kWidth, 16, rows, vectors, exact>(a, b, c, k);
  else multiply_blocks<kWidth, 32, rows, vectors, exact>(a, b, c, k);
}

void multiply(unsigned n, const float* a, const float* b, float* c, unsigned k, bool exact) {
  if (exact) multiply_any<true>(n, a, b, c, k);
  else multiply_any<false>(n, a, b, c, k);
}

bool is_extreme(const float* values, unsigned count) {
  using U = typename Vectors<4>::U;
  U found{};
  for (unsigned i = 0; i < count; i += 4) {
    U bits;
    std::memcpy(&bits, values + i, sizeof(bits));
    bits &= 0x7fffffffU;
    found |= same_bits<U>((bits >> 23) - 72 > 110U) & same_bits<U>(bits != 0);
  }
  return (found[0] | found[1] | found[2] | found[3]) != 0;
}

}  // namespace

}  // namespace msa_ops::emulator::gfx950

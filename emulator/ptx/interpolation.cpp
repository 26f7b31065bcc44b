#include "interpolation.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "interpolation_tables.hpp"
#include "lanes.hpp"

namespace msa_ops::emulator::ptx {
namespace {

using std::int64_t, std::uint16_t, std::uint32_t, std::uint64_t;

constexpr unsigned kBits = 17;    // of the operand within a part of a table
constexpr unsigned kDropped = 19;  // columns of the square's products of bits that are not added
constexpr uint32_t kMantissa = 0x7fffff;

// Squares of all numbers of kBits bits, as sums of products of pairs of bits, each pair once, without the columns that
// are dropped; in units of 2^kDropped.
const std::array<uint16_t, std::size_t{1} << kBits>& squares() {
  static const auto made = [] {
    std::array<uint16_t, std::size_t{1} << kBits> all{};
    for (unsigned bit = 0; bit < kBits; ++bit) {
      const uint32_t own = 2 * bit >= kDropped ? 1U << (2 * bit - kDropped) : 0;
      const uint32_t top = 1U << bit;
      for (uint32_t rest = 0; rest < top; ++rest) {
        all[top + rest] = static_cast<uint16_t>(all[rest] + own + (rest >> (kDropped - 1 - bit)));
      }
    }
    return all;
  }();
  return made;
}

// The table's part by the bits of `at` above kBits.
int64_t interpolate(const Coefficients* table, uint32_t at) {
  static const auto* square = squares().data();
  const Coefficients& c = table[at >> kBits];
  const uint32_t within = at & ((1U << kBits) - 1);
  return c.constant + int64_t{c.linear} * within + int64_t{c.square} * square[within];
}

// value * 2^-scale, cut to an fp32 number.
float cut(uint64_t value, int scale) {
  if (value == 0) return 0;
  const int above = 63 - __builtin_clzll(value) - 23;
  if (above > 0) value = value >> above << above;
  return static_cast<float>(std::ldexp(static_cast<double>(value), -scale));
}

int exponent(float a) { return static_cast<int>(bit_cast<uint32_t>(a) >> 23 & 255) - 127; }

// The operand is cut to 25 bits of a turn.
float sine(uint32_t turns, bool negative) {
  constexpr uint32_t kQuarter = 1U << 23;
  const bool falls = (turns & kQuarter) != 0, below = (turns & 2 * kQuarter) != 0;
  const uint32_t within = (falls ? ~turns : turns) & kMantissa;
  const float magnitude = cut(static_cast<uint64_t>(interpolate(kSine, within)) >> 2, 37);
  return below != negative ? -magnitude : magnitude;
}

uint32_t fraction_of_turn(float turns) {
  const double magnitude = std::fabs(double{turns});
  return static_cast<uint32_t>(std::fmod(magnitude, 1.0) * 0x1p25);
}

// Of each exponent from -8: where its parts begin, and how far the mantissa is moved to the right.
struct TanhRange {
  unsigned first, shift;
};
constexpr int kLeastTanh = -8;
constexpr TanhRange kTanhRanges[]{{0, 6}, {1, 6}, {2, 6}, {3, 5}, {5, 5}, {7, 4}, {11, 4}, {15, 4}, {19, 3}, {27, 2}, {43, 3}};

}  // namespace

float interpolated_lg2(float a) {
  if (a == 1) return 0;
  const uint32_t mantissa = bit_cast<uint32_t>(a) & kMantissa;
  const int64_t value = (int64_t{exponent(a)} << 36) + (interpolate(kLog2, mantissa) >> 2);
  return value < 0 ? -cut(static_cast<uint64_t>(~value), 36) : cut(static_cast<uint64_t>(value), 36);
}

float interpolated_sin(float turns) { return sine(fraction_of_turn(turns), std::signbit(turns)); }
float interpolated_cos(float turns) { return sine(fraction_of_turn(turns) + (1U << 23), false); }

float interpolated_tanh(float a) {
  const int power = exponent(a);
  if (power < kLeastTanh) return a;
  if (power > 2) return std::copysign(1.0F, a);
  const TanhRange& range = kTanhRanges[power - kLeastTanh];
  const uint32_t mantissa = bit_cast<uint32_t>(a) & kMantissa;
  const auto value = interpolate(kTanh + range.first, mantissa >> range.shift);
  return std::copysign(cut(static_cast<uint64_t>(value), 40 - std::min(power, -1)), a);
}

}  // namespace msa_ops::emulator::ptx

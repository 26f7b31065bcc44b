#include "approximate.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "interpolation.hpp"
#include "numbers.hpp"

namespace msa_ops::emulator::ptx {
namespace {

using std::int32_t, std::uint32_t;

constexpr uint32_t kMantissa = 0x7fffff;
// Neighbours differ by little more than a straight line does: of each 1,024 results the line, and of each result how
// far above it is, 0 to 3. Found without a branch, so that the processor waits for the memory of many lanes at once.
class Table {
 public:
  void set(const std::string& bytes, std::size_t count) {
    if (bytes.size() != 3 + count) throw std::invalid_argument("a table of another length");
    uint32_t value = 0;
    std::memcpy(&value, bytes.data(), sizeof(value));
    lines_.clear();
    above_.assign(count / kPacked, 0);
    std::vector<int64_t> results(kPart);
    for (std::size_t first = 0; first < count; first += kPart) {
      for (std::size_t i = 0; i < kPart; ++i) {
        const std::size_t at = first + i;
        if (at > 0) value += static_cast<uint32_t>(static_cast<int32_t>(static_cast<signed char>(bytes[3 + at])));
        results[i] = value;
      }
      add_line(results, first);
    }
  }
  bool is_there() const { return !lines_.empty(); }
  uint32_t at(uint32_t index) const {
    const Line& line = lines_[index / kPart];
    const uint32_t above = above_[index / kPacked] >> (index % kPacked * 2) & 3;
    return static_cast<uint32_t>(line.at(static_cast<int32_t>(index % kPart))) + above;
  }

 private:
  static constexpr std::size_t kPart = 1024, kPacked = 16;
  struct Line {
    int32_t start, slope;  // of 2^-16
    int32_t at(int32_t place) const { return start + (slope * place >> 16); }
  };
  void add_line(const std::vector<int64_t>& results, std::size_t first) {
    const int64_t rise = (results.back() - results.front()) * 65536;
    Line line{static_cast<int32_t>(results.front()), static_cast<int32_t>(rise / static_cast<int64_t>(kPart - 1))};
    int64_t least = 0;
    for (std::size_t i = 0; i < kPart; ++i) least = std::min(least, results[i] - line.at(static_cast<int32_t>(i)));
    line.start += static_cast<int32_t>(least);
    for (std::size_t i = 0; i < kPart; ++i) {
      const int64_t above = results[i] - line.at(static_cast<int32_t>(i));
      if (above > 3) throw std::invalid_argument("a table that is not smooth");
      above_[(first + i) / kPacked] |= static_cast<uint32_t>(above) << ((first + i) % kPacked * 2);
    }
    lines_.push_back(line);
  }

  std::vector<Line> lines_;
  std::vector<uint32_t> above_;  // 16 of two bits each
};

Table rcp_values, rsqrt_values, sqrt_values, ex2_values;


float nearest(double value) { return canonical(flush(static_cast<float>(value))); }

bool is_ordinary(float a) { return std::isfinite(a) && a != 0; }
int32_t exponent(float a) { return static_cast<int32_t>(bit_cast<uint32_t>(a) >> 23 & 255) - 127; }
uint32_t mantissa(float a) { return bit_cast<uint32_t>(a) & kMantissa; }

// Bits of a positive normal number with its exponent moved; flushed if that makes it subnormal.
float scaled(uint32_t bits, int32_t powers) {
  const int32_t moved = static_cast<int32_t>(bits) + powers * (1 << 23);
  return moved < 1 << 23 ? 0.0F : bit_cast<float>(moved);
}

constexpr std::uint32_t kInfinity64 = 0x7ff00000, kLeastNormal64 = 0x00100000, kUpperNan64 = 0x7fffffff;
constexpr int32_t kRebias = 1023 - 127;  // from fp32's exponents

// A number's upper word with this many powers of two more; zero where that is no normal number.
uint32_t moved64(uint32_t word, int32_t powers) {
  const int32_t moved = static_cast<int32_t>(word) + powers * (1 << 20);
  return moved < (1 << 20) ? 0 : static_cast<uint32_t>(moved);
}

uint32_t upper_word(double value) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  const auto word = static_cast<uint32_t>(bits >> 32);
  return (word & 0x7fffffff) < kLeastNormal64 ? word & 0x80000000 : word;
}
double from_upper_word(uint32_t word) {
  const std::uint64_t bits = std::uint64_t{word} << 32;
  double value = 0;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

}  // namespace

void set_unit_table(const std::string& name, const std::string& bytes) {
  constexpr std::size_t kCount = std::size_t{1} << 23;
  if (name == "rcp") return rcp_values.set(bytes, kCount);
  if (name == "rsqrt") return rsqrt_values.set(bytes, 2 * kCount);
  if (name == "sqrt") return sqrt_values.set(bytes, 2 * kCount);
  if (name == "ex2") return ex2_values.set(bytes, kCount);
  throw std::invalid_argument("no table of the unit: " + name);
}

float unit_rcp(float a) {
  a = flush(a);
  if (!is_ordinary(a) || !rcp_values.is_there()) return nearest(1.0 / a);
  return std::copysign(scaled(rcp_values.at(mantissa(a)), -exponent(a)), a);
}

float unit_rsqrt(float a) {
  a = flush(a);
  if (!is_ordinary(a) || a < 0 || !rsqrt_values.is_there()) return nearest(1.0 / std::sqrt(double{a}));
  const int32_t odd = exponent(a) & 1;
  return scaled(rsqrt_values.at(mantissa(a) | static_cast<uint32_t>(odd) << 23), -(exponent(a) - odd) / 2);
}

float unit_sqrt(float a) {
  a = flush(a);
  if (!is_ordinary(a) || a < 0 || !sqrt_values.is_there()) return nearest(std::sqrt(double{a}));
  const int32_t odd = exponent(a) & 1;
  return scaled(sqrt_values.at(mantissa(a) | static_cast<uint32_t>(odd) << 23), (exponent(a) - odd) / 2);
}

// The operand is cut to 23 bits of fraction; of a negative one that is not whole by then, all bits are turned.
float unit_ex2(float a) {
  a = flush(a);
  if (std::isnan(a) || std::fabs(a) >= 256 || !ex2_values.is_there()) return nearest(std::exp2(double{a}));
  const auto magnitude = static_cast<int32_t>(std::fabs(a) * 0x1p23F);
  const bool whole = (magnitude & static_cast<int32_t>(kMantissa)) == 0;
  const int32_t fixed = a >= 0 ? magnitude : whole ? -magnitude : ~magnitude;
  const int32_t power = fixed >> 23;
  if (power > 127) return INFINITY;
  return scaled(ex2_values.at(static_cast<uint32_t>(fixed) & kMantissa), power - 1);  // the table is of 1 to 2
}

void unit_ex2(const float* a, float* out) {
  if (!ex2_values.is_there()) {
    for (unsigned i = 0; i < kLanes; ++i) out[i] = unit_ex2(a[i]);
    return;
  }
  int32_t fixed[kLanes];
  for (unsigned i = 0; i < kLanes; ++i) {
    const bool ordinary = std::fabs(a[i]) < 256;
    const auto magnitude = static_cast<int32_t>(ordinary ? std::fabs(a[i]) * 0x1p23F : 0.0F);
    const bool turned = (a[i] < 0) & ((magnitude & static_cast<int32_t>(kMantissa)) != 0);
    fixed[i] = turned ? ~magnitude : a[i] < 0 ? -magnitude : magnitude;
  }
  uint32_t found[kLanes];
  for (unsigned i = 0; i < kLanes; ++i) found[i] = ex2_values.at(static_cast<uint32_t>(fixed[i]) & kMantissa);
  for (unsigned i = 0; i < kLanes; ++i) {
    const int32_t power = fixed[i] >> 23;
    if (!(std::fabs(a[i]) < 256)) out[i] = unit_ex2(a[i]);
    else out[i] = power > 127 ? INFINITY : scaled(found[i], power - 1);
  }
}

float unit_lg2(float a) {
  a = flush(a);
  return is_ordinary(a) && a > 0 ? interpolated_lg2(a) : nearest(std::log2(double{a}));
}
float unit_sin(float turns) {
  return std::isfinite(turns) ? interpolated_sin(flush(turns)) : bit_cast<float>(kNan32);
}
float unit_cos(float turns) {
  return std::isfinite(turns) ? interpolated_cos(flush(turns)) : bit_cast<float>(kNan32);
}
float unit_tanh(float a) { return std::isnan(a) ? canonical(a) : interpolated_tanh(a); }

// The upper words of fp64 numbers have 20 bits of mantissa, and the results are cut to as many.
std::uint32_t unit_rcp64(std::uint32_t a) {
  const std::uint32_t sign = a & 0x80000000U, magnitude = a & 0x7fffffffU;
  if (magnitude > kInfinity64) return kUpperNan64;
  if (magnitude == kInfinity64) return sign;
  if (magnitude < kLeastNormal64) return sign | kInfinity64;
  if (!rcp_values.is_there()) return upper_word(1.0 / from_upper_word(a));
  const auto power = static_cast<int32_t>(magnitude >> 20) - 1023;
  return sign | moved64(rcp_values.at((magnitude & 0xfffff) << 3) >> 3, kRebias - power);
}
std::uint32_t unit_rsqrt64(std::uint32_t a) {
  const std::uint32_t sign = a & 0x80000000U, magnitude = a & 0x7fffffffU;
  if (magnitude > kInfinity64 || (sign != 0 && magnitude >= kLeastNormal64)) return kUpperNan64;
  if (magnitude == kInfinity64) return 0;
  if (magnitude < kLeastNormal64) return sign | kInfinity64;
  if (!rsqrt_values.is_there()) return upper_word(1.0 / std::sqrt(from_upper_word(a)));
  const auto power = static_cast<int32_t>(magnitude >> 20) - 1023;
  const int32_t odd = power & 1;
  const std::uint32_t place = (magnitude & 0xfffff) << 3 | static_cast<std::uint32_t>(odd) << 23;
  return moved64(rsqrt_values.at(place) >> 3, kRebias - (power - odd) / 2);
}

}  // namespace msa_ops::emulator::ptx

#include "approximate.hpp"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "numbers.hpp"

namespace msa_ops::emulator::ptx {
namespace {

using std::int32_t, std::uint32_t;

constexpr double kTurn = 6.283185307179586476925286766559;
constexpr uint32_t kMantissa = 0x7fffff;
constexpr uint32_t kEvery = 16;  // results between two that are kept whole

class Table {
 public:
  void set(const std::string& bytes, std::size_t count) {
    if (bytes.size() != 3 + count) throw std::invalid_argument("a table of another length");
    uint32_t value = 0;
    std::memcpy(&value, bytes.data(), sizeof(value));
    steps_.assign(1, 0);
    steps_.insert(steps_.end(), bytes.begin() + 4, bytes.end());
    for (std::size_t i = 0; i < count; ++i) {
      value += static_cast<uint32_t>(static_cast<int32_t>(static_cast<signed char>(steps_[i])));
      if (i % kEvery == 0) whole_.push_back(value);
    }
  }
  bool is_there() const { return !whole_.empty(); }
  uint32_t at(uint32_t index) const {
    uint32_t value = whole_[index / kEvery];
    for (uint32_t i = index - index % kEvery + 1; i <= index; ++i) {
      value += static_cast<uint32_t>(static_cast<int32_t>(static_cast<signed char>(steps_[i])));
    }
    return value;
  }

 private:
  std::vector<char> steps_;  // to the one before
  std::vector<uint32_t> whole_;
};

Table& rcp_table() { static Table table; return table; }
Table& rsqrt_table() { static Table table; return table; }
Table& sqrt_table() { static Table table; return table; }
Table& ex2_table() { static Table table; return table; }

float nearest(double value) { return canonical(flush(static_cast<float>(value))); }

bool is_ordinary(float a) { return std::isfinite(a) && a != 0; }
int32_t exponent(float a) { return static_cast<int32_t>(bit_cast<uint32_t>(a) >> 23 & 255) - 127; }
uint32_t mantissa(float a) { return bit_cast<uint32_t>(a) & kMantissa; }

// Bits of a positive normal number with its exponent moved; flushed if that makes it subnormal.
float scaled(uint32_t bits, int32_t powers) {
  const int32_t moved = static_cast<int32_t>(bits) + powers * (1 << 23);
  return moved < 1 << 23 ? 0.0F : bit_cast<float>(moved);
}

}  // namespace

void set_unit_table(const std::string& name, const std::string& bytes) {
  constexpr std::size_t kCount = std::size_t{1} << 23;
  if (name == "rcp") return rcp_table().set(bytes, kCount);
  if (name == "rsqrt") return rsqrt_table().set(bytes, 2 * kCount);
  if (name == "sqrt") return sqrt_table().set(bytes, 2 * kCount);
  if (name == "ex2") return ex2_table().set(bytes, kCount);
  throw std::invalid_argument("no table of the unit: " + name);
}

float unit_rcp(float a) {
  a = flush(a);
  if (!is_ordinary(a) || !rcp_table().is_there()) return nearest(1.0 / a);
  return std::copysign(scaled(rcp_table().at(mantissa(a)), -exponent(a)), a);
}

float unit_rsqrt(float a) {
  a = flush(a);
  if (!is_ordinary(a) || a < 0 || !rsqrt_table().is_there()) return nearest(1.0 / std::sqrt(double{a}));
  const int32_t odd = exponent(a) & 1;
  return scaled(rsqrt_table().at(mantissa(a) | static_cast<uint32_t>(odd) << 23), -(exponent(a) - odd) / 2);
}

float unit_sqrt(float a) {
  a = flush(a);
  if (!is_ordinary(a) || a < 0 || !sqrt_table().is_there()) return nearest(std::sqrt(double{a}));
  const int32_t odd = exponent(a) & 1;
  return scaled(sqrt_table().at(mantissa(a) | static_cast<uint32_t>(odd) << 23), (exponent(a) - odd) / 2);
}

// The operand is cut to 23 bits of fraction; of a negative one that is not whole by then, all bits are turned.
float unit_ex2(float a) {
  a = flush(a);
  if (std::isnan(a) || std::fabs(a) >= 256 || !ex2_table().is_there()) return nearest(std::exp2(double{a}));
  const auto magnitude = static_cast<int32_t>(std::fabs(a) * 0x1p23F);
  const bool whole = (magnitude & static_cast<int32_t>(kMantissa)) == 0;
  const int32_t fixed = a >= 0 ? magnitude : whole ? -magnitude : ~magnitude;
  const int32_t power = fixed >> 23;
  if (power > 127) return INFINITY;
  return scaled(ex2_table().at(static_cast<uint32_t>(fixed) & kMantissa), power - 1);  // the table is of 1 to 2
}

float unit_lg2(float a) { return nearest(std::log2(double{flush(a)})); }
float unit_sin(float turns) { return nearest(std::sin(double{flush(turns)} * kTurn)); }
float unit_cos(float turns) { return nearest(std::cos(double{flush(turns)} * kTurn)); }
float unit_tanh(float a) { return canonical(static_cast<float>(std::tanh(double{a}))); }

}  // namespace msa_ops::emulator::ptx

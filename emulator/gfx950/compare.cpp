// Comparisons: a bit a lane.
#include <cmath>

#include "lane_functions.hpp"
#include "wave.hpp"

namespace msa_ops::emulator::gfx950 {
namespace {

template <typename Condition>
Mask mask_of(Condition condition) {
  alignas(64) std::uint8_t truth[kLanes];
  for (unsigned lane = 0; lane < kLanes; ++lane) truth[lane] = condition(lane) ? 1 : 0;
  Mask mask = 0;
  for (unsigned group = 0; group < 8; ++group) {
    std::uint64_t eight;
    std::memcpy(&eight, truth + 8 * group, 8);
    mask |= ((eight * 0x0102040810204080) >> 56) << (8 * group);
  }
  return mask;
}

template <typename T>
T load(const std::uint32_t* row, unsigned lane) {
  if constexpr (sizeof(T) == 8) {
    const std::uint64_t bits = wide(row, lane);
    T value;
    std::memcpy(&value, &bits, 8);
    return value;
  } else if constexpr (sizeof(T) == 2) {
    return static_cast<T>(row[lane]);
  } else {
    T value;
    std::memcpy(&value, &row[lane], 4);
    return value;
  }
}
struct Half {};
template <>
Half load<Half>(const std::uint32_t*, unsigned) = delete;
template <typename T>
struct Loader {
  static T get(const std::uint32_t* row, unsigned lane) { return load<T>(row, lane); }
};
template <>
struct Loader<Half> {
  static float get(const std::uint32_t* row, unsigned lane) { return half_to(row[lane] & 0xffff); }
};

template <typename T, int condition>
void compare_float(VectorOperation& o) {
  const std::uint32_t* const a_row = o.a;
  const std::uint32_t* const b_row = o.b;
  o.mask = mask_of([=](unsigned lane) {
    const auto a = Loader<T>::get(a_row, lane);
    const auto b = Loader<T>::get(b_row, lane);
    switch (condition) {
      case 1: return a < b;
      case 2: return a == b;
      case 3: return a <= b;
      case 4: return a > b;
      case 5: return a < b || a > b;
      case 6: return a >= b;
      case 7: return a == a && b == b;
      case 8: return a != a || b != b;
      case 9: return !(a >= b);
      case 10: return !(a < b || a > b);
      case 11: return !(a > b);
      case 12: return !(a <= b);
      case 13: return !(a == b);
      case 14: return !(a < b);
      case 15: return true;
      default: return false;
    }
  });
}

template <typename T, int condition>
void compare_integer(VectorOperation& o) {
  const std::uint32_t* const a_row = o.a;
  const std::uint32_t* const b_row = o.b;
  o.mask = mask_of([=](unsigned lane) {
    const T a = load<T>(a_row, lane), b = load<T>(b_row, lane);
    switch (condition) {
      case 1: return a < b;
      case 2: return a == b;
      case 3: return a <= b;
      case 4: return a > b;
      case 5: return a != b;
      case 6: return a >= b;
      case 7: return true;
      default: return false;
    }
  });
}

// Bits of the second operand: signalling NaN, quiet NaN, -infinity, -normal, -subnormal, -0, +0, +subnormal, +normal,
// +infinity.
unsigned class_of(double value, bool signalling, double smallest_normal) {
  if (std::isnan(value)) return signalling ? 1 : 2;
  const bool negative = std::signbit(value);
  if (std::isinf(value)) return negative ? 4 : 512;
  if (value == 0) return negative ? 32 : 64;
  if (std::fabs(value) < smallest_normal) return negative ? 16 : 128;
  return negative ? 8 : 256;
}

void class32(VectorOperation& o) {
  o.mask = mask_of([&](unsigned lane) {
    const std::uint32_t bits = o.a[lane];
    return (class_of(as_float(bits), (bits & 0x400000) == 0, 0x1p-126) & o.b[lane]) != 0;
  });
}
void class64(VectorOperation& o) {
  o.mask = mask_of([&](unsigned lane) {
    const std::uint64_t bits = wide(o.a, lane);
    return (class_of(as_double(bits), (bits >> 51 & 1) == 0, 0x1p-1022) & o.b[lane]) != 0;
  });
}
void class16(VectorOperation& o) {
  o.mask = mask_of([&](unsigned lane) {
    return (class_of(half_to(o.a[lane] & 0xffff), (o.a[lane] & 0x200) == 0, 0x1p-14) & o.b[lane]) != 0;
  });
}

const char* keep(std::string text) {  // names live as long as the program
  static std::vector<std::unique_ptr<std::string>> names;
  names.push_back(std::make_unique<std::string>(std::move(text)));
  return names.back()->c_str();
}

void add_pair(std::vector<Form>& made, unsigned number, unsigned to_exec, const std::string& rest, Type a, Type b,
              VectorFunction function) {
  made.push_back(vector_form(Encoding::kVopc, number, keep("v_cmp_" + rest), Type::kMask, a, b, Type::kNone, function,
                             kWritesVcc));
  made.push_back(vector_form(Encoding::kVopc, number + to_exec, keep("v_cmpx_" + rest), Type::kMask, a, b, Type::kNone,
                             function, kWritesVcc | kWritesExec));
}

template <typename T, int... conditions>
void add_floats(std::vector<Form>& made, unsigned base, const char* type, Type operand,
                std::integer_sequence<int, conditions...>) {
  static const char* const kNames[] = {"f", "lt",  "eq",  "le",  "gt",  "lg",  "ge",  "o",
                                       "u", "nge", "nlg", "ngt", "nle", "neq", "nlt", "tru"};
  (add_pair(made, base + conditions, 16, std::string(kNames[conditions]) + "_" + type, operand, operand,
            compare_float<T, conditions>),
   ...);
}
template <typename T, int... conditions>
void add_integers(std::vector<Form>& made, unsigned base, const char* type, Type operand,
                  std::integer_sequence<int, conditions...>) {
  static const char* const kNames[] = {"f", "lt", "eq", "le", "gt", "ne", "ge", "t"};
  (add_pair(made, base + conditions, 16, std::string(kNames[conditions]) + "_" + type, operand, operand,
            compare_integer<T, conditions>),
   ...);
}

}  // namespace

std::vector<Form> compare_forms() {
  std::vector<Form> made;
  add_pair(made, 0x10, 1, "class_f32", Type::kF32, Type::kB32, class32);
  add_pair(made, 0x12, 1, "class_f64", Type::kF64, Type::kB32, class64);
  add_pair(made, 0x14, 1, "class_f16", Type::kF16, Type::kB32, class16);
  constexpr auto sixteen = std::make_integer_sequence<int, 16>();
  constexpr auto eight = std::make_integer_sequence<int, 8>();
  add_floats<Half>(made, 0x20, "f16", Type::kF16, sixteen);
  add_floats<float>(made, 0x40, "f32", Type::kF32, sixteen);
  add_floats<double>(made, 0x60, "f64", Type::kF64, sixteen);
  add_integers<std::int16_t>(made, 0xa0, "i16", Type::kB16, eight);
  add_integers<std::uint16_t>(made, 0xa8, "u16", Type::kB16, eight);
  add_integers<std::int32_t>(made, 0xc0, "i32", Type::kB32, eight);
  add_integers<std::uint32_t>(made, 0xc8, "u32", Type::kB32, eight);
  add_integers<std::int64_t>(made, 0xe0, "i64", Type::kB64, eight);
  add_integers<std::uint64_t>(made, 0xe8, "u64", Type::kB64, eight);
  return made;
}

}  // namespace msa_ops::emulator::gfx950

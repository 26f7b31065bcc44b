// A function of one lane's values as a function of a whole vector operation.
#pragma once

#include "forms.hpp"
#include "numbers.hpp"

namespace msa_ops::emulator::gfx950 {

// Sources are taken as A, B, C; results are 32 bits.
template <typename F>
inline void each_lane(VectorOperation& o, F function) {
  std::uint32_t* __restrict d = o.d;
  for (unsigned lane = 0; lane < kLanes; ++lane) d[lane] = function(lane);
}

#define LANES1(EXPRESSION)                                                                      \
  [](VectorOperation& o) {                                                                      \
    const std::uint32_t* const a_row = o.a;                                                     \
    each_lane(o, [=](unsigned lane) -> std::uint32_t { const std::uint32_t a = a_row[lane]; return EXPRESSION; }); \
  }
#define LANES2(EXPRESSION)                                                                      \
  [](VectorOperation& o) {                                                                      \
    const std::uint32_t* const a_row = o.a;                                                     \
    const std::uint32_t* const b_row = o.b;                                                     \
    each_lane(o, [=](unsigned lane) -> std::uint32_t {                                          \
      const std::uint32_t a = a_row[lane], b = b_row[lane];                                     \
      return EXPRESSION;                                                                        \
    });                                                                                         \
  }
#define LANES3(EXPRESSION)                                                                      \
  [](VectorOperation& o) {                                                                      \
    const std::uint32_t* const a_row = o.a;                                                     \
    const std::uint32_t* const b_row = o.b;                                                     \
    const std::uint32_t* const c_row = o.c;                                                     \
    each_lane(o, [=](unsigned lane) -> std::uint32_t {                                          \
      const std::uint32_t a = a_row[lane], b = b_row[lane], c = c_row[lane];                    \
      return EXPRESSION;                                                                        \
    });                                                                                         \
  }

inline std::uint64_t wide(const std::uint32_t* row, unsigned lane) {
  return row[lane] | static_cast<std::uint64_t>(row[lane + kLanes]) << 32;
}
inline void set_wide(std::uint32_t* row, unsigned lane, std::uint64_t value) {
  row[lane] = static_cast<std::uint32_t>(value);
  row[lane + kLanes] = static_cast<std::uint32_t>(value >> 32);
}

// A form of VALU.
inline Form vector_form(Encoding encoding, unsigned number, const char* name, Type destination, Type a, Type b, Type c,
                        VectorFunction function, std::uint32_t flags = 0) {
  return {encoding, static_cast<std::uint16_t>(number), name, destination, {a, b, c}, execute_vector, function, flags};
}

}  // namespace msa_ops::emulator::gfx950

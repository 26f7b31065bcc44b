// What atomic operations of memory and of the LDS do to a value.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "numbers.hpp"

namespace msa_ops::emulator::gfx950 {

// Replaces a value in memory as one indivisible step, also for other host threads, and returns the old one.
template <typename T, typename Function>
T exchange_memory(std::byte* place, Function function) {
  T* const at = reinterpret_cast<T*>(place);
  T old = __atomic_load_n(at, __ATOMIC_RELAXED);
  T wanted = function(old);
  while (!__atomic_compare_exchange_n(at, &old, wanted, true, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
    wanted = function(old);
  return old;
}

template <typename T> T swapped(T, T b) { return b; }
template <typename T> T added(T a, T b) { return a + b; }
template <typename T> T subtracted(T a, T b) { return a - b; }
template <typename T> T reverse_subtracted(T a, T b) { return b - a; }
template <typename T>
T signed_min(T a, T b) {
  return static_cast<std::make_signed_t<T>>(a) < static_cast<std::make_signed_t<T>>(b) ? a : b;
}
template <typename T>
T signed_max(T a, T b) {
  return static_cast<std::make_signed_t<T>>(a) > static_cast<std::make_signed_t<T>>(b) ? a : b;
}
template <typename T> T unsigned_min(T a, T b) { return a < b ? a : b; }
template <typename T> T unsigned_max(T a, T b) { return a > b ? a : b; }
template <typename T> T anded(T a, T b) { return a & b; }
template <typename T> T ored(T a, T b) { return a | b; }
template <typename T> T xored(T a, T b) { return a ^ b; }
template <typename T> T incremented(T a, T b) { return a >= b ? 0 : a + 1; }
template <typename T> T decremented(T a, T b) { return a == 0 || a > b ? b : a - 1; }

inline std::uint32_t added_f32(std::uint32_t a, std::uint32_t b) {
  return nan_of(as_bits(as_float(a) + as_float(b)), a, b);
}
inline std::uint32_t min_f32(std::uint32_t a, std::uint32_t b) { return as_bits(std::fmin(as_float(a), as_float(b))); }
inline std::uint32_t max_f32(std::uint32_t a, std::uint32_t b) { return as_bits(std::fmax(as_float(a), as_float(b))); }
inline std::uint64_t added_f64(std::uint64_t a, std::uint64_t b) { return as_bits(as_double(a) + as_double(b)); }
inline std::uint64_t min_f64(std::uint64_t a, std::uint64_t b) {
  return as_bits(std::fmin(as_double(a), as_double(b)));
}
inline std::uint64_t max_f64(std::uint64_t a, std::uint64_t b) {
  return as_bits(std::fmax(as_double(a), as_double(b)));
}
inline std::uint32_t added_f16x2(std::uint32_t a, std::uint32_t b) {
  return half_from(half_to(a & 0xffff) + half_to(b & 0xffff)) |
         static_cast<std::uint32_t>(half_from(half_to(a >> 16) + half_to(b >> 16))) << 16;
}
inline std::uint32_t added_bf16x2(std::uint32_t a, std::uint32_t b) {
  return bfloat_from(bfloat_to(a & 0xffff) + bfloat_to(b & 0xffff)) |
         bfloat_from(bfloat_to(a >> 16) + bfloat_to(b >> 16)) << 16;
}

}  // namespace msa_ops::emulator::gfx950

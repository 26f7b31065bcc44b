// A function of one lane's values, applied to all lanes of an instruction.
#pragma once

#include <cstring>

#include "warp.hpp"

namespace msa_ops::emulator::ptx {

inline int lowest(Mask lanes) { return __builtin_ctz(lanes); }

// Calls function(lane) for each lane of the mask; without a branch a lane where all take part.
template <typename Function>
inline void for_lanes(Mask lanes, Function function) {
  if (lanes == kAllLanes) {
    for (unsigned lane = 0; lane < kLanes; ++lane) function(lane);
  } else {
    for (; lanes != 0; lanes &= lanes - 1) function(static_cast<unsigned>(__builtin_ctz(lanes)));
  }
}

// Rows are the same or apart, so that lanes may be computed together.
template <typename Function>
inline void for_independent_lanes(Mask lanes, Function function) {
  if (lanes == kAllLanes) {
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC ivdep
#endif
    for (unsigned lane = 0; lane < kLanes; ++lane) function(lane);
  } else {
    for_lanes(lanes, function);
  }
}

template <typename R, typename A, R (*function)(A)>
void unary(PtxWarp& warp, const Instruction& i, Mask lanes) {
  R* out = warp.out<R>(i.operands[0]);
  const A* a = warp.row<A>(i.operands[1]);
  for_independent_lanes(lanes, [&](unsigned lane) { out[lane] = function(a[lane]); });
}

template <typename R, typename A, typename B, R (*function)(A, B)>
void binary(PtxWarp& warp, const Instruction& i, Mask lanes) {
  R* out = warp.out<R>(i.operands[0]);
  const A* a = warp.row<A>(i.operands[1]);
  const B* b = warp.row<B>(i.operands[2]);
  for_independent_lanes(lanes, [&](unsigned lane) { out[lane] = function(a[lane], b[lane]); });
}

template <typename R, typename A, typename B, typename C, R (*function)(A, B, C)>
void ternary(PtxWarp& warp, const Instruction& i, Mask lanes) {
  R* out = warp.out<R>(i.operands[0]);
  const A* a = warp.row<A>(i.operands[1]);
  const B* b = warp.row<B>(i.operands[2]);
  const C* c = warp.row<C>(i.operands[3]);
  for_independent_lanes(lanes, [&](unsigned lane) { out[lane] = function(a[lane], b[lane], c[lane]); });
}

template <typename To, typename From>
inline To bit_cast(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof(to));
  return to;
}

}  // namespace msa_ops::emulator::ptx

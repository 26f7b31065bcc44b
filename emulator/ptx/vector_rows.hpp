// Arithmetic of whole rows of lanes in the processor's vectors, for the instructions that kernels use most. Everything
// gives the bits of the functions of one lane in numbers.hpp and opcodes_*.cpp, which are used where a lane is missing.
#pragma once

#include <cstdint>

#include "lanes.hpp"

namespace msa_ops::emulator::ptx::rows {

// `out` may be one of the operands. NaN results are the one NaN of the format.
using Float1 = void (*)(const float* a, float* out, unsigned count);
using Float2 = void (*)(const float* a, const float* b, float* out, unsigned count);
using Float3 = void (*)(const float* a, const float* b, const float* c, float* out, unsigned count);
void add(const float* a, const float* b, float* out, unsigned count);
void sub(const float* a, const float* b, float* out, unsigned count);
void mul(const float* a, const float* b, float* out, unsigned count);
void fma(const float* a, const float* b, const float* c, float* out, unsigned count);
void min(const float* a, const float* b, float* out, unsigned count);  // of a NaN and a number the number
void max(const float* a, const float* b, float* out, unsigned count);

// Subnormal operands and results count as zero. mul and fma return whether a result is the least normal number: then
// it may have been rounded up from one that counts as zero, and the caller looks at each lane.
void add_flushed(const float* a, const float* b, float* out, unsigned count);
void sub_flushed(const float* a, const float* b, float* out, unsigned count);
bool mul_flushed(const float* a, const float* b, float* out, unsigned count);
bool fma_flushed(const float* a, const float* b, const float* c, float* out, unsigned count);

// fp16, rounded to nearest even.
void half_add(const std::uint16_t* a, const std::uint16_t* b, std::uint16_t* out, unsigned count);
void half_sub(const std::uint16_t* a, const std::uint16_t* b, std::uint16_t* out, unsigned count);
void half_mul(const std::uint16_t* a, const std::uint16_t* b, std::uint16_t* out, unsigned count);
void half_fma(const std::uint16_t* a, const std::uint16_t* b, const std::uint16_t* c, std::uint16_t* out,
              unsigned count);

// Conversions of fp32, to nearest even: of one number, and of pairs with `high` in the upper half.
void halves_from(const float* in, std::uint16_t* out, unsigned count);
void half_pairs_from(const float* high, const float* low, std::uint32_t* out, unsigned count);
void bfloats_from(const float* in, std::uint16_t* out, unsigned count);
void bfloat_pairs_from(const float* high, const float* low, std::uint32_t* out, unsigned count);
void e4m3_pairs_from(const float* high, const float* low, std::uint16_t* out, unsigned count);  // saturating
void floats_from_halves(const std::uint16_t* in, float* out, unsigned count);

// Handlers: the rows where all lanes take part, else `one`.
template <typename R, typename A, void (*all)(const A*, R*, unsigned), Handler one>
void unary(PtxWarp& warp, const Instruction& i, Mask lanes) {
  if (lanes != kAllLanes) return one(warp, i, lanes);
  all(warp.row<A>(i.operands[1]), warp.out<R>(i.operands[0]), kLanes);
}
// `parts` numbers stand in a register.
template <typename R, typename A, void (*all)(const A*, const A*, R*, unsigned), Handler one, unsigned parts = 1>
void binary(PtxWarp& warp, const Instruction& i, Mask lanes) {
  if (lanes != kAllLanes) return one(warp, i, lanes);
  all(warp.row<A>(i.operands[1]), warp.row<A>(i.operands[2]), warp.out<R>(i.operands[0]), kLanes * parts);
}
template <typename R, typename A, void (*all)(const A*, const A*, const A*, R*, unsigned), Handler one,
          unsigned parts = 1>
void ternary(PtxWarp& warp, const Instruction& i, Mask lanes) {
  if (lanes != kAllLanes) return one(warp, i, lanes);
  all(warp.row<A>(i.operands[1]), warp.row<A>(i.operands[2]), warp.row<A>(i.operands[3]), warp.out<R>(i.operands[0]),
      kLanes * parts);
}
// Of fp32, with flushing.
template <bool (*all)(const float*, const float*, float*, unsigned), Handler one, unsigned parts = 1>
void binary_flushed(PtxWarp& warp, const Instruction& i, Mask lanes) {
  if (lanes != kAllLanes) return one(warp, i, lanes);
  float found[kLanes * parts];
  if (all(warp.row<float>(i.operands[1]), warp.row<float>(i.operands[2]), found, kLanes * parts)) {
    return one(warp, i, lanes);
  }
  std::memcpy(warp.out<float>(i.operands[0]), found, sizeof(found));
}
template <bool (*all)(const float*, const float*, const float*, float*, unsigned), Handler one, unsigned parts = 1>
void ternary_flushed(PtxWarp& warp, const Instruction& i, Mask lanes) {
  if (lanes != kAllLanes) return one(warp, i, lanes);
  float found[kLanes * parts];
  if (all(warp.row<float>(i.operands[1]), warp.row<float>(i.operands[2]), warp.row<float>(i.operands[3]), found,
          kLanes * parts)) {
    return one(warp, i, lanes);
  }
  std::memcpy(warp.out<float>(i.operands[0]), found, sizeof(found));
}

}  // namespace msa_ops::emulator::ptx::rows

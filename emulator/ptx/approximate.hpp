// The functions that NVIDIA's multifunction unit approximates, as PTX instructions use it.
#pragma once

#include <cstdint>
#include <string>

namespace msa_ops::emulator::ptx {

// The unit itself: subnormal operands count as zero, subnormal results become zero (but for tanh). The bits are those of
// an H200; of rcp, rsqrt, sqrt and ex2 once their tables are there, before that the nearest number.
float unit_rcp(float a);
float unit_rsqrt(float a);
float unit_sqrt(float a);
float unit_lg2(float a);
float unit_ex2(float a);
void unit_ex2(const float* a, float* out);  // of all lanes; `out` is another row, or the same
float unit_sin(float turns);
float unit_cos(float turns);
float unit_tanh(float a);
// Of the upper word of an fp64 number, to the upper word of the result; the lower words are not looked at, and zero.
std::uint32_t unit_rcp64(std::uint32_t a);
std::uint32_t unit_rsqrt64(std::uint32_t a);

// The table of rcp (mantissas from 1 to 2), rsqrt, sqrt (from 1 to 4) or ex2 (fractions of 23 bits): the first result's
// bits in four bytes, then the difference of each to the one before in a byte. Throws std::invalid_argument for another
// name or length. Must not be called while kernels run.
void set_unit_table(const std::string& name, const std::string& bytes);

}  // namespace msa_ops::emulator::ptx

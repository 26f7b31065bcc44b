// The functions that NVIDIA's multifunction unit approximates, as PTX instructions use it.
#pragma once

#include <string>

namespace msa_ops::emulator::ptx {

// The unit itself: subnormal operands count as zero, subnormal results become zero (but for tanh). Of rcp, rsqrt, sqrt and
// ex2 the bits are those of an H200, once their tables are there; of the others, and before, the nearest number.
float unit_rcp(float a);
float unit_rsqrt(float a);
float unit_sqrt(float a);
float unit_lg2(float a);
float unit_ex2(float a);
void unit_ex2(const float* a, float* out);  // of all lanes; `out` is another row, or the same
float unit_sin(float turns);
float unit_cos(float turns);
float unit_tanh(float a);

// The table of rcp (mantissas from 1 to 2), rsqrt, sqrt (from 1 to 4) or ex2 (fractions of 23 bits): the first result's
// bits in four bytes, then the difference of each to the one before in a byte. Throws std::invalid_argument for another
// name or length. Must not be called while kernels run.
void set_unit_table(const std::string& name, const std::string& bytes);

}  // namespace msa_ops::emulator::ptx

// The functions that NVIDIA's multifunction unit approximates, as PTX instructions use it.
#pragma once

#include <cstdint>

namespace msa_ops::emulator::ptx {

// The unit itself: subnormal operands count as zero, subnormal results become zero.
float unit_rcp(float a);
float unit_rsqrt(float a);
float unit_sqrt(float a);
float unit_lg2(float a);
float unit_ex2(float a);
float unit_sin(float turns);
float unit_cos(float turns);
float unit_tanh(float a);

}  // namespace msa_ops::emulator::ptx

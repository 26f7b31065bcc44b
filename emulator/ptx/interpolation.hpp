// lg2, sin, cos and tanh as the multifunction unit computes them: a table by the operand's high bits, and a square
// polynomial of the 17 bits below whose square is cut short. Results are cut, not rounded. Bit-equal to an H200 for every operand
// (tests/emulator/silicon/units_h200.txt).
#pragma once

#include <cstdint>

namespace msa_ops::emulator::ptx {

// Of positive normal numbers.
float interpolated_lg2(float a);
// Of any finite number of turns.
float interpolated_sin(float turns);
float interpolated_cos(float turns);
// Of any finite number.
float interpolated_tanh(float a);

}  // namespace msa_ops::emulator::ptx

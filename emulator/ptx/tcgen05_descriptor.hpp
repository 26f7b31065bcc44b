// The 32-bit instruction descriptor of tcgen05.mma, checked against the instruction's kind.
#pragma once

#include <cstdint>
#include <string>

#include "../device/chip.hpp"
#include "../matrix/formats.hpp"

namespace msa_ops::emulator::ptx {

struct TensorProduct {
  enum class Kind : std::uint8_t { kF16, kTf32, kF8f6f4, kI8, kMxf8f6f4, kMxf4, kMxf4nvf4 };
  enum class Sum : std::uint8_t { kF16, kF32, kS32 };

  // Of the instruction:
  Kind kind = Kind::kF16;
  unsigned group = 1;          // blocks
  bool weight_stationary = false;
  bool sparse = false;         // A holds half of the elements along k
  unsigned scale_block = 0;    // elements along k with one scale factor; 0: none

  // Of the descriptor:
  unsigned m = 0, n = 0, k = 0;
  unsigned selector = 0;       // of sparsity metadata: a column of tensor memory
  matrix::Element a{}, b{};
  Sum sum = Sum::kF32;
  bool negate_a = false, negate_b = false, a_mn_major = false, b_mn_major = false, saturate = false;
  matrix::Scale scale = matrix::Scale::kUe8m0;
  unsigned a_scale_id = 0, b_scale_id = 0;
  bool a_scales_by_lane = false;  // a row's factors are in its own lane, and not in four copies
  unsigned most_shift = 0;        // of B's columns, with .ws

  bool packs_nibbles() const { return kind == Kind::kMxf4 || kind == Kind::kMxf4nvf4; }
  unsigned kept() const { return sparse ? k / 2 : k; }  // elements of a row of A
  // Bytes of so many elements of an operand along k in shared memory, where narrow ones of the other kinds fill bytes.
  unsigned bytes_of(unsigned elements) const {
    if (packs_nibbles()) return elements / 2;
    const unsigned bits = matrix::bits_of(a);
    return elements * (bits < 8 ? 8 : bits) / 8;
  }
};

std::string name_of(TensorProduct::Kind kind);

// Fills in what the descriptor says. Violation for what the chip does not take.
void decode(TensorProduct& product, std::uint32_t descriptor, const Chip& chip);

}  // namespace msa_ops::emulator::ptx

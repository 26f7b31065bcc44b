// Element types of matrix instructions, and their values as numbers that arithmetic can use.
#pragma once

#include <cstddef>
#include <cstdint>

namespace msa_ops::emulator::matrix {

enum class Element : std::uint8_t {
  kF64, kF32, kTf32, kF16, kBf16, kE4m3, kE5m2, kE2m3, kE3m2, kE2m1, kS8, kU8, kS4, kU4, kB1
};

// Scale factors of blocks. UE4M3 is E4M3 without a sign; UE5M3 has one exponent bit more, 0xff is its only NaN.
enum class Scale : std::uint8_t { kUe8m0, kUe4m3, kUe5m3 };

constexpr unsigned bits_of(Element element) {
  switch (element) {
    case Element::kF64: return 64;
    case Element::kF32:
    case Element::kTf32: return 32;
    case Element::kF16:
    case Element::kBf16: return 16;
    case Element::kE2m3:
    case Element::kE3m2: return 6;
    case Element::kE2m1:
    case Element::kS4:
    case Element::kU4: return 4;
    case Element::kB1: return 1;
    default: return 8;
  }
}

// Codes to fp32, which holds every value of these formats. A TF32 operand is an fp32 whose low 13 bits do not count.
void floats_from(Element element, const std::uint8_t* codes, float* out, std::size_t count);
void floats_from(Element element, const std::uint16_t* codes, float* out, std::size_t count);
void floats_from_tf32(const std::uint32_t* codes, float* out, std::size_t count);

// The same from elements that stand beside each other in memory without gaps, low bits first; any format but fp64, B1.
void floats_from_packed(Element element, const void* packed, float* out, std::size_t count);
void integers_from_packed(Element element, const void* packed, std::int32_t* out, std::size_t count);

// The 256 values of a format of 8 bits or less; codes beyond the format's bits repeat.
const float* values_of(Element element);
const float* values_of(Scale scale);

// fp32 to fp16, to nearest even; NaN is 0x7fff.
std::uint16_t half_from(float value);

}  // namespace msa_ops::emulator::matrix

// Kinds of matrix products, as counters tell them apart.
#pragma once

#include <cstddef>

#include "formats.hpp"

namespace msa_ops::emulator::matrix {

enum class Kind { kF64, kTf32, kF16, kF8f6f4, kI8, kI4, kB1, kMxf8f6f4, kMxf4, kMxf4nvf4 };
constexpr std::size_t kKinds = 10;

inline const char* name_of(Kind kind) {
  constexpr const char* kNames[kKinds]{"f64", "tf32", "f16", "f8f6f4", "i8", "i4", "b1", "mxf8f6f4", "mxf4", "mxf4nvf4"};
  return kNames[static_cast<std::size_t>(kind)];
}

// Of unscaled products; FP16 and BF16 are one kind.
inline Kind kind_of(Element element) {
  switch (element) {
    case Element::kF64: return Kind::kF64;
    case Element::kF32:
    case Element::kTf32: return Kind::kTf32;
    case Element::kF16:
    case Element::kBf16: return Kind::kF16;
    case Element::kS8:
    case Element::kU8: return Kind::kI8;
    case Element::kS4:
    case Element::kU4: return Kind::kI4;
    case Element::kB1: return Kind::kB1;
    default: return Kind::kF8f6f4;
  }
}

}  // namespace msa_ops::emulator::matrix

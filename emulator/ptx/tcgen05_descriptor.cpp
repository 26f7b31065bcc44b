#include "tcgen05_descriptor.hpp"

#include "../device/fault.hpp"

namespace msa_ops::emulator::ptx {
namespace {

using Kind = TensorProduct::Kind;
using Sum = TensorProduct::Sum;
using matrix::Element;

[[noreturn]] void refuse(const TensorProduct& product, const std::string& what) {
  throw Violation{FaultKind::kDescriptor, "the instruction descriptor has " + what + ", which kind::" +
                                              name_of(product.kind) + " does not take"};
}

Element element_of(const TensorProduct& product, unsigned format, const char* operand) {
  switch (product.kind) {
    case Kind::kF16:
      if (format == 0) return Element::kF16;
      if (format == 1) return Element::kBf16;
      break;
    case Kind::kTf32:
      if (format == 2) return Element::kTf32;
      break;
    case Kind::kI8:
      if (format == 0) return Element::kU8;
      if (format == 1) return Element::kS8;
      break;
    case Kind::kMxf4:
    case Kind::kMxf4nvf4:
      if (format == 1) return Element::kE2m1;
      break;
    case Kind::kF8f6f4:
    case Kind::kMxf8f6f4:
      switch (format) {
        case 0: return Element::kE4m3;
        case 1: return Element::kE5m2;
        case 3: return Element::kE2m3;
        case 4: return Element::kE3m2;
        case 5: return Element::kE2m1;
        default: break;
      }
      break;
  }
  refuse(product, std::string("format ") + std::to_string(format) + " of " + operand);
}

void check_shape(const TensorProduct& product) {
  const auto fail = [&] {
    refuse(product, "shape " + std::to_string(product.m) + " x " + std::to_string(product.n) + " with cta_group::" +
                        std::to_string(product.group) + (product.weight_stationary ? " and .ws" : ""));
  };
  const unsigned m = product.m, n = product.n;
  if (n < 8 || n > 256) fail();
  if (product.weight_stationary) {
    if ((m != 32 && m != 64 && m != 128) || (n != 64 && n != 128 && n != 256)) fail();
    return;
  }
  if (product.scale_block != 0) {
    if (product.group == 1 ? m != 128 || n % 8 != 0 : (m != 128 && m != 256) || n % 16 != 0) fail();
    return;
  }
  const bool integers = product.kind == Kind::kI8;
  if (product.group == 1) {
    if ((m != 64 && m != 128) || n % 8 != 0 || (integers && n > 32 && n % 16 != 0)) fail();
  } else if ((m != 128 && m != 256) || n % (integers ? 32 : 16) != 0) {
    fail();
  }
}

}  // namespace

std::string name_of(Kind kind) {
  switch (kind) {
    case Kind::kF16: return "f16";
    case Kind::kTf32: return "tf32";
    case Kind::kF8f6f4: return "f8f6f4";
    case Kind::kI8: return "i8";
    case Kind::kMxf8f6f4: return "mxf8f6f4";
    case Kind::kMxf4: return "mxf4";
    case Kind::kMxf4nvf4: return "mxf4nvf4";
  }
  return "";
}

void decode(TensorProduct& product, std::uint32_t descriptor, const Chip& chip) {
  const auto bits = [&](unsigned first, unsigned count) { return descriptor >> first & ((1U << count) - 1); };
  const bool scaled = product.scale_block != 0;
  const bool rubin = chip.major == 10 && chip.minor == 7;
  if ((bits(2, 1) != 0) != product.sparse) {
    refuse(product, product.sparse ? "no bit of sparse operands" : "the bit of sparse operands without .sp");
  }
  product.a = element_of(product, bits(7, 3), "A");
  // Of FP4, the bit above says how sparse operands are written, which does not matter here.
  product.b = element_of(product, bits(10, product.packs_nibbles() ? 2 : 3), "B");
  if (product.kind == Kind::kF16 && product.a != product.b) refuse(product, "different formats of A and B");
  product.negate_a = bits(13, 1) != 0;
  product.negate_b = bits(14, 1) != 0;
  product.a_mn_major = bits(15, 1) != 0;
  product.b_mn_major = bits(16, 1) != 0;
  if ((product.a_mn_major && matrix::bits_of(product.a) < 8) || (product.b_mn_major && matrix::bits_of(product.b) < 8)) {
    refuse(product, "an MN-major operand of less than 8 bits");
  }
  product.n = bits(17, 6) * 8;
  product.m = scaled ? bits(27, 2) * 128 : bits(24, 5) * 16;
  check_shape(product);
  if (scaled) {
    product.sum = Sum::kF32;
    product.b_scale_id = bits(4, 2);
    product.a_scale_id = bits(29, 2);
    constexpr matrix::Scale kScales[]{matrix::Scale::kUe4m3, matrix::Scale::kUe8m0, matrix::Scale::kUe5m3};
    const unsigned scale = bits(23, 2);
    if (scale > 2) refuse(product, "format 3 of scale factors");
    product.scale = kScales[scale];
    if (scale != 1 && product.kind != Kind::kMxf4nvf4) {
      refuse(product, scale == 0 ? "scale factors UE4M3" : "scale factors UE5M3");
    }
    if (scale == 2 && !rubin) refuse(product, "scale factors UE5M3 on " + chip.name);
    product.a_scales_by_lane = bits(26, 1) != 0;
    if (product.a_scales_by_lane && !rubin) refuse(product, "scale factors of A in 128 lanes (bit 26) on " + chip.name);
    if (product.kind == Kind::kMxf8f6f4) {
      product.k = bits(31, 1) != 0 ? 64 : 32;
      if (product.k == 64 && !rubin) refuse(product, "K 64 on " + chip.name);
    } else {
      // Two bits apart from each other.
      constexpr unsigned kDepths[]{64, 96, 128, 0};
      product.k = kDepths[bits(31, 1) | bits(3, 1) << 1];
      if (product.k == 0) refuse(product, "both bits of a longer K");
      const unsigned least_minor = product.k == 96 ? 3 : product.k == 128 ? 7 : 0;
      if (chip.major != 10 || chip.minor < least_minor) {
        refuse(product, "K " + std::to_string(product.k) + " on " + chip.name);
      }
    }
    return;
  }
  if (bits(30, 2) != 0 && !product.weight_stationary) refuse(product, "a shift of B's columns without .ws");
  product.most_shift = bits(30, 2) == 0 ? 0 : 4U << bits(30, 2);
  const unsigned sum = bits(4, 2);
  switch (product.kind) {
    case Kind::kI8:
      if (sum != 2) refuse(product, "format " + std::to_string(sum) + " of D");
      product.sum = Sum::kS32;
      product.saturate = bits(3, 1) != 0;
      break;
    case Kind::kTf32:
      if (sum != 1) refuse(product, "format " + std::to_string(sum) + " of D");
      break;
    default:
      if (sum > 1) refuse(product, "format " + std::to_string(sum) + " of D");
      product.sum = sum == 0 ? Sum::kF16 : Sum::kF32;
  }
  product.k = product.kind == Kind::kF16 ? 16 : product.kind == Kind::kTf32 ? 8 : 32;
  if (product.sparse) {
    product.selector = bits(0, 2);
    if (product.selector != 0 && product.kind != Kind::kF16 && product.kind != Kind::kTf32) {
      refuse(product, "sparsity selector " + std::to_string(product.selector));
    }
    product.k *= 2;
    if (product.m / product.group != 128) {
      throw Violation{FaultKind::kDescriptor, "unsupported: sparse products with M " + std::to_string(product.m) +
                                                  " and cta_group::" + std::to_string(product.group)};
    }
  }
  if (bits(29, 1) != 0) {
    if (product.sparse) refuse(product, "a longer K with .sp");
    if (!rubin || product.kind != Kind::kF8f6f4) refuse(product, "K 64 on " + chip.name);
    product.k = 64;
  }
}

}  // namespace msa_ops::emulator::ptx

// Conversions between formats.
#include <algorithm>
#include <cmath>

#include "lane_functions.hpp"
#include "wave.hpp"

namespace msa_ops::emulator::gfx950 {
namespace {

constexpr Type N = Type::kNone, B = Type::kB32, F = Type::kF32, D = Type::kF64, H = Type::kF16, W = Type::kB64,
               S = Type::kB16;
constexpr Encoding V1 = Encoding::kVop1, V3 = Encoding::kVop3;

std::uint32_t to_u32(double value) {
  if (std::isnan(value)) return 0;
  return static_cast<std::uint32_t>(
      static_cast<std::int64_t>(std::min(std::max(std::trunc(value), 0.0), 4294967295.0)));
}
std::uint32_t to_i32(double value) {
  if (std::isnan(value)) return 0;
  return static_cast<std::uint32_t>(
      static_cast<std::int32_t>(std::min(std::max(std::trunc(value), -2147483648.0), 2147483647.0)));
}
std::uint32_t half_toward_zero(float value) {
  const std::uint32_t near = half_from(value);
  if (std::isnan(value) || std::isinf(value)) return near;
  // One step back if rounding went away from zero.
  return std::fabs(half_to(near)) > std::fabs(value) ? near - 1 : near;
}

// Single codes to fp32, by table.
struct Tables {
  float e4m3[256], e5m2[256], e2m3[64], e3m2[64], e2m1[16];
  Tables() {
    for (unsigned i = 0; i < 256; ++i) e4m3[i] = static_cast<float>(decode_double(kE4m3, i));
    for (unsigned i = 0; i < 256; ++i) e5m2[i] = static_cast<float>(decode_double(kE5m2, i));
    for (unsigned i = 0; i < 64; ++i) e2m3[i] = static_cast<float>(decode_double(kE2m3, i));
    for (unsigned i = 0; i < 64; ++i) e3m2[i] = static_cast<float>(decode_double(kE3m2, i));
    for (unsigned i = 0; i < 16; ++i) e2m1[i] = static_cast<float>(decode_double(kE2m1, i));
  }
};
const Tables& tables() {
  static const Tables made;
  return made;
}
std::uint32_t clean(float value) { return std::isnan(value) ? kNan32 : as_bits(value); }

// MODE.FP16_OVFL: numbers beyond the largest become it, instead of infinity or NaN.
bool saturates(const VectorOperation& o) { return (o.wave.mode() >> 23 & 1) != 0; }

std::uint32_t narrow(const Format& f, double value, const VectorOperation& o, const std::uint32_t* random = nullptr) {
  return encode(f, value, saturates(o) || (!f.has_infinity && !f.nan_at_top), random);
}

void put_word(VectorOperation& o, unsigned lane, std::uint32_t word) {
  o.d[lane] =
      o.instruction.destination.high ? (o.d[lane] & 0xffff) | word << 16 : (o.d[lane] & 0xffff0000) | (word & 0xffff);
}
unsigned word_mask(const VectorOperation& o) { return o.instruction.destination.high ? 12 : 3; }
unsigned byte_of_destination(const VectorOperation& o) {
  return (o.instruction.sources[2].high ? 1U : 0U) | (o.instruction.destination.high ? 2U : 0U);
}
void put_byte(VectorOperation& o, unsigned lane, std::uint32_t byte) {
  const unsigned shift = 8 * byte_of_destination(o);
  o.d[lane] = (o.d[lane] & ~(0xffU << shift)) | (byte & 0xff) << shift;
}

template <const Format& format>
void pk_narrow(VectorOperation& o) {  // two fp32 to a word of two bytes
  for (unsigned l = 0; l < kLanes; ++l)
    put_word(o, l, narrow(format, as_float(o.a[l]), o) | narrow(format, as_float(o.b[l]), o) << 8);
  o.mask = word_mask(o);
}
template <const Format& format>
void sr_narrow(VectorOperation& o) {
  for (unsigned l = 0; l < kLanes; ++l) put_byte(o, l, narrow(format, as_float(o.a[l]), o, &o.b[l]));
  o.mask = 1U << byte_of_destination(o);
}
template <const Format& format>
void sr_half(VectorOperation& o) {
  for (unsigned l = 0; l < kLanes; ++l) put_word(o, l, narrow(format, as_float(o.a[l]), o, &o.b[l]));
  o.mask = word_mask(o);
}
constexpr Format kFp8 = kE4m3, kBf8 = kE5m2, kHalf = kF16, kBfloat = kBf16;

// ---- with a scale: the exponent of an fp32 number, as E8M0 has it; 255 is NaN
double scale_of(std::uint32_t bits) {
  const int exponent = static_cast<int>(bits >> 23 & 255);
  return exponent == 255 ? NAN : std::ldexp(1.0, exponent - 127);
}
std::uint32_t next_random(std::uint32_t x) {  // v_prng_b32
  return (x << 1) ^ ((x >> 31) != 0 ? 197U : 0U);
}

enum class Element { kF32, kF16, kBf16, kFp8, kBf8, kFp6, kBf6, kFp4 };
constexpr unsigned bits_of(Element e) {
  switch (e) {
    case Element::kF32: return 32;
    case Element::kF16: case Element::kBf16: return 16;
    case Element::kFp8: case Element::kBf8: return 8;
    case Element::kFp6: case Element::kBf6: return 6;
    default: return 4;
  }
}
double element_to(Element e, std::uint32_t bits) {
  switch (e) {
    case Element::kF32: return as_float(bits);
    case Element::kF16: return half_to(bits);
    case Element::kBf16: return bfloat_to(bits);
    case Element::kFp8: return tables().e4m3[bits];
    case Element::kBf8: return tables().e5m2[bits];
    case Element::kFp6: return tables().e2m3[bits];
    case Element::kBf6: return tables().e3m2[bits];
    default: return tables().e2m1[bits];
  }
}
std::uint32_t element_from(Element e, double value, bool saturate, const std::uint32_t* random) {
  switch (e) {
    case Element::kF32: return clean(static_cast<float>(value));
    case Element::kF16: return std::isnan(value) ? 0x7e00U : encode(kF16, value, saturate, random);
    case Element::kBf16: return std::isnan(value) ? 0x7fc0U : encode(kBf16, value, saturate, random);
    case Element::kFp8: return encode(kE4m3, value, saturate, random);
    case Element::kBf8: return encode(kE5m2, value, saturate, random);
    case Element::kFp6: return encode(kE2m3, value, true, random);
    case Element::kBf6: return encode(kE3m2, value, true, random);
    default: return encode(kE2m1, value, true, random);
  }
}
double scaled_down(double value, double scale) { return std::isnan(scale) ? NAN : value / scale; }

// From a wide element to a narrow one. Two elements from the words of a and b (fp32), or from the halves of a.
template <Element from, Element to, bool random, unsigned count>
void scale_down(VectorOperation& o) {
  constexpr unsigned width = bits_of(to);
  const bool pair_in_one = from == Element::kF32 && random && count == 2;  // a is a pair of registers
  for (unsigned l = 0; l < kLanes; ++l) {
    const std::uint32_t scale_bits = from == Element::kF32 || random ? o.c[l] : o.b[l];
    const double scale = scale_of(scale_bits);
    std::uint32_t state = random ? o.b[l] : 0, packed = 0;
    for (unsigned i = 0; i < count; ++i) {
      std::uint32_t bits = 0;
      if (from == Element::kF32) bits = i == 0 ? o.a[l] : pair_in_one ? o.a[l + kLanes] : o.b[l];
      else bits = o.a[l] >> (16 * i) & 0xffff;
      const std::uint32_t now = state;
      packed |= element_from(to, scaled_down(element_to(from, bits), scale), saturates(o), random ? &now : nullptr)
                << (width * i);
      state = next_random(state);
    }
    if (width * count == 16) put_word(o, l, packed);
    else put_byte(o, l, packed);
  }
  o.mask = width * count == 16 ? word_mask(o) : 1U << byte_of_destination(o);
}

// From a narrow element, chosen by op_sel, to a wide one.
template <Element from, Element to, unsigned count>
void scale_up(VectorOperation& o) {
  constexpr unsigned width = bits_of(from);
  const Operand& source = o.instruction.sources[0];
  unsigned shift = 0;
  if (width * count == 16) shift = source.high ? 16 : 0;
  else shift = 8 * ((source.high ? 1U : 0U) | (o.instruction.sources[1].high ? 2U : 0U));
  for (unsigned l = 0; l < kLanes; ++l) {
    const double scale = scale_of(o.b[l]);
    std::uint32_t out[2] = {0, 0};
    for (unsigned i = 0; i < count; ++i) {
      const std::uint32_t bits = o.a[l] >> (shift + width * i) & ((1U << width) - 1);
      out[i] = element_from(to, element_to(from, bits) * scale, false, nullptr);
    }
    if (to == Element::kF32) {
      o.d[l] = out[0];
      if (count == 2) o.d[l + kLanes] = out[1];
    } else if (count == 2) {
      o.d[l] = out[0] | out[1] << 16;
    } else {
      put_word(o, l, out[0]);
    }
  }
  if (to != Element::kF32 && count == 1) o.mask = word_mask(o);
}

// ---- 32 elements of a lane
std::uint32_t field(const Wave& wave, unsigned row, unsigned lane, unsigned bit, unsigned width) {
  const std::uint32_t low = wave.row(row + bit / 32)[lane];
  std::uint64_t both = low;
  if (bit % 32 + width > 32) both |= static_cast<std::uint64_t>(wave.row(row + bit / 32 + 1)[lane]) << 32;
  return static_cast<std::uint32_t>(both >> (bit % 32)) & static_cast<std::uint32_t>((std::uint64_t{1} << width) - 1);
}

template <Element from, Element to, bool random>
void convert_32(Wave& wave, const Instruction& i) {
  constexpr unsigned in = bits_of(from), out = bits_of(to);
  constexpr bool two_sources = from == Element::kF32 && !random;  // 16 and 16, taken in turns
  constexpr bool up = bits_of(from) < bits_of(to);
  for (const Operand& operand : i.sources) {
    if (operand.dwords > 1 && operand.kind != Operand::Kind::kVector) {
      throw Violation{FaultKind::kIllegal, "32 elements that are not in vector registers"};
    }
  }
  const Mask lanes = wave.exec();
  const bool saturate = (wave.mode() >> 23 & 1) != 0;
  const Operand& scale_operand = two_sources || random ? i.sources[2] : i.sources[1];
  const auto lane_value = [&](const Operand& operand, unsigned lane) {
    return operand.kind == Operand::Kind::kVector ? wave.row(operand.index)[lane] : wave.value32(operand);
  };
  for_lanes(lanes, [&](unsigned lane) {
    std::uint32_t result[33] = {};
    const double scale = scale_of(lane_value(scale_operand, lane));
    std::uint32_t state = random ? lane_value(i.sources[1], lane) : 0;
    for (unsigned e = 0; e < 32; ++e) {
      const std::uint32_t bits = two_sources ? field(wave, i.sources[e % 2].index, lane, e / 2 * 32, 32)
                                             : field(wave, i.sources[0].index, lane, e * in, in);
      const double value = element_to(from, bits);
      const std::uint32_t now = state;
      const std::uint64_t code =
          element_from(to, up ? value * scale : scaled_down(value, scale), saturate, random ? &now : nullptr);
      state = next_random(state);
      const unsigned bit = e * out;
      const std::uint64_t placed = code << (bit % 32);
      result[bit / 32] |= static_cast<std::uint32_t>(placed);
      result[bit / 32 + 1] |= static_cast<std::uint32_t>(placed >> 32);
    }
    for (unsigned word = 0; word < i.destination.dwords; ++word)
      wave.row(i.destination.index + word)[lane] = result[word];
  });
  for (unsigned word = 0; word < i.destination.dwords; ++word) wave.define(i.destination.index + word, lanes);
}

}  // namespace

std::vector<Form> convert_forms() {
  std::vector<Form> made;
  const auto add = [&](Encoding e, unsigned n, const char* name, Type d, Type a, Type b, Type c, VectorFunction f,
                       std::uint32_t flags = 0) { made.push_back(vector_form(e, n, name, d, a, b, c, f, flags)); };
  const auto wide_form = [&](unsigned n, const char* name, Type d, Type a, Type b, Type c, Handler h) {
    made.push_back({V3, static_cast<std::uint16_t>(n), name, d, {a, b, c}, h, nullptr, 0});
  };
  add(V1, 3, "v_cvt_i32_f64", B, D, N, N, [](VectorOperation& o) {
    for (unsigned l = 0; l < kLanes; ++l) o.d[l] = to_i32(as_double(wide(o.a, l)));
  });
  add(V1, 21, "v_cvt_u32_f64", B, D, N, N, [](VectorOperation& o) {
    for (unsigned l = 0; l < kLanes; ++l) o.d[l] = to_u32(as_double(wide(o.a, l)));
  });
  add(V1, 4, "v_cvt_f64_i32", D, B, N, N, [](VectorOperation& o) {
    for (unsigned l = 0; l < kLanes; ++l)
      set_wide(o.d, l, as_bits(static_cast<double>(static_cast<std::int32_t>(o.a[l]))));
  });
  add(V1, 22, "v_cvt_f64_u32", D, B, N, N, [](VectorOperation& o) {
    for (unsigned l = 0; l < kLanes; ++l) set_wide(o.d, l, as_bits(static_cast<double>(o.a[l])));
  });
  add(V1, 15, "v_cvt_f32_f64", F, D, N, N, [](VectorOperation& o) {
    for (unsigned l = 0; l < kLanes; ++l) o.d[l] = clean(static_cast<float>(as_double(wide(o.a, l))));
  });
  add(V1, 16, "v_cvt_f64_f32", D, F, N, N, [](VectorOperation& o) {
    for (unsigned l = 0; l < kLanes; ++l) set_wide(o.d, l, as_bits(static_cast<double>(as_float(o.a[l]))));
  });
  add(V1, 5, "v_cvt_f32_i32", F, B, N, N, LANES1(as_bits(static_cast<float>(static_cast<std::int32_t>(a)))));
  add(V1, 6, "v_cvt_f32_u32", F, B, N, N, LANES1(as_bits(static_cast<float>(a))));
  add(V1, 7, "v_cvt_u32_f32", B, F, N, N, LANES1(to_u32(as_float(a))));
  add(V1, 8, "v_cvt_i32_f32", B, F, N, N, LANES1(to_i32(as_float(a))));
  add(V1, 10, "v_cvt_f16_f32", H, F, N, N, LANES1(half_from(as_float(a))));
  add(V1, 11, "v_cvt_f32_f16", F, H, N, N, LANES1(as_bits(half_to(a & 0xffff))));
  add(V1, 12, "v_cvt_rpi_i32_f32", B, F, N, N, LANES1(to_i32(std::floor(static_cast<double>(as_float(a)) + 0.5))));
  add(V1, 13, "v_cvt_flr_i32_f32", B, F, N, N, LANES1(to_i32(std::floor(as_float(a)))));
  add(V1, 17, "v_cvt_f32_ubyte0", F, B, N, N, LANES1(as_bits(static_cast<float>(a & 0xff))));
  add(V1, 18, "v_cvt_f32_ubyte1", F, B, N, N, LANES1(as_bits(static_cast<float>(a >> 8 & 0xff))));
  add(V1, 19, "v_cvt_f32_ubyte2", F, B, N, N, LANES1(as_bits(static_cast<float>(a >> 16 & 0xff))));
  add(V1, 20, "v_cvt_f32_ubyte3", F, B, N, N, LANES1(as_bits(static_cast<float>(a >> 24))));
  add(V1, 84, "v_cvt_f32_fp8", F, B, N, N, LANES1(clean(tables().e4m3[a & 0xff])));
  add(V1, 85, "v_cvt_f32_bf8", F, B, N, N, LANES1(clean(tables().e5m2[a & 0xff])));
  add(V1, 86, "v_cvt_pk_f32_fp8", W, S, N, N, [](VectorOperation& o) {
    for (unsigned l = 0; l < kLanes; ++l) {
      const std::uint32_t a = o.a[l];
      o.d[l] = clean(tables().e4m3[a & 0xff]);
      o.d[l + kLanes] = clean(tables().e4m3[a >> 8 & 0xff]);
    }
  });
  add(V1, 87, "v_cvt_pk_f32_bf8", W, S, N, N, [](VectorOperation& o) {
    for (unsigned l = 0; l < kLanes; ++l) {
      const std::uint32_t a = o.a[l];
      o.d[l] = clean(tables().e5m2[a & 0xff]);
      o.d[l + kLanes] = clean(tables().e5m2[a >> 8 & 0xff]);
    }
  });
  add(V1, 88, "v_prng_b32", B, B, N, N, LANES1(next_random(a)));
  add(V1, 91, "v_cvt_f32_bf16", F, S, N, N, LANES1(clean(bfloat_to(a & 0xffff))));
  add(V3, 662, "v_cvt_pkrtz_f16_f32", B, F, F, N,
      LANES2(half_toward_zero(as_float(a)) | half_toward_zero(as_float(b)) << 16));
  add(V3, 615, "v_cvt_pk_f16_f32", B, F, F, N,
      LANES2(half_from(as_float(a)) | static_cast<std::uint32_t>(half_from(as_float(b))) << 16));
  add(V3, 616, "v_cvt_pk_bf16_f32", B, F, F, N, LANES2(bfloat_from(as_float(a)) | bfloat_from(as_float(b)) << 16));
  add(V3, 674, "v_cvt_pk_fp8_f32", B, F, F, N, pk_narrow<kFp8>, kPartial);
  add(V3, 675, "v_cvt_pk_bf8_f32", B, F, F, N, pk_narrow<kBf8>, kPartial);
  add(V3, 676, "v_cvt_sr_fp8_f32", B, F, B, N, sr_narrow<kFp8>, kPartial);
  add(V3, 677, "v_cvt_sr_bf8_f32", B, F, B, N, sr_narrow<kBf8>, kPartial);
  add(V3, 678, "v_cvt_sr_f16_f32", B, F, B, N, sr_half<kHalf>, kPartial);
  add(V3, 679, "v_cvt_sr_bf16_f32", B, F, B, N, sr_half<kBfloat>, kPartial);

  using E = Element;
  add(V3, 565, "v_cvt_scalef32_pk_fp8_f32", B, F, F, F, scale_down<E::kF32, E::kFp8, false, 2>, kPartial);
  add(V3, 566, "v_cvt_scalef32_pk_bf8_f32", B, F, F, F, scale_down<E::kF32, E::kBf8, false, 2>, kPartial);
  add(V3, 567, "v_cvt_scalef32_sr_fp8_f32", B, F, B, F, scale_down<E::kF32, E::kFp8, true, 1>, kPartial);
  add(V3, 568, "v_cvt_scalef32_sr_bf8_f32", B, F, B, F, scale_down<E::kF32, E::kBf8, true, 1>, kPartial);
  add(V3, 569, "v_cvt_scalef32_pk_f32_fp8", W, B, F, N, scale_up<E::kFp8, E::kF32, 2>);
  add(V3, 570, "v_cvt_scalef32_pk_f32_bf8", W, B, F, N, scale_up<E::kBf8, E::kF32, 2>);
  add(V3, 571, "v_cvt_scalef32_f32_fp8", F, B, F, N, scale_up<E::kFp8, E::kF32, 1>);
  add(V3, 572, "v_cvt_scalef32_f32_bf8", F, B, F, N, scale_up<E::kBf8, E::kF32, 1>);
  add(V3, 573, "v_cvt_scalef32_pk_fp4_f32", B, F, F, F, scale_down<E::kF32, E::kFp4, false, 2>, kPartial);
  add(V3, 574, "v_cvt_scalef32_sr_pk_fp4_f32", B, W, B, F, scale_down<E::kF32, E::kFp4, true, 2>, kPartial);
  add(V3, 575, "v_cvt_scalef32_pk_f32_fp4", W, B, F, N, scale_up<E::kFp4, E::kF32, 2>);
  add(V3, 576, "v_cvt_scalef32_pk_fp8_f16", B, B, F, N, scale_down<E::kF16, E::kFp8, false, 2>, kPartial);
  add(V3, 577, "v_cvt_scalef32_pk_bf8_f16", B, B, F, N, scale_down<E::kF16, E::kBf8, false, 2>, kPartial);
  add(V3, 578, "v_cvt_scalef32_sr_fp8_f16", B, B, B, F, scale_down<E::kF16, E::kFp8, true, 1>, kPartial);
  add(V3, 579, "v_cvt_scalef32_sr_bf8_f16", B, B, B, F, scale_down<E::kF16, E::kBf8, true, 1>, kPartial);
  add(V3, 580, "v_cvt_scalef32_pk_fp8_bf16", B, B, F, N, scale_down<E::kBf16, E::kFp8, false, 2>, kPartial);
  add(V3, 581, "v_cvt_scalef32_pk_bf8_bf16", B, B, F, N, scale_down<E::kBf16, E::kBf8, false, 2>, kPartial);
  add(V3, 582, "v_cvt_scalef32_sr_fp8_bf16", B, B, B, F, scale_down<E::kBf16, E::kFp8, true, 1>, kPartial);
  add(V3, 583, "v_cvt_scalef32_sr_bf8_bf16", B, B, B, F, scale_down<E::kBf16, E::kBf8, true, 1>, kPartial);
  add(V3, 584, "v_cvt_scalef32_pk_f16_fp8", B, B, F, N, scale_up<E::kFp8, E::kF16, 2>);
  add(V3, 585, "v_cvt_scalef32_pk_f16_bf8", B, B, F, N, scale_up<E::kBf8, E::kF16, 2>);
  add(V3, 586, "v_cvt_scalef32_f16_fp8", B, B, F, N, scale_up<E::kFp8, E::kF16, 1>, kPartial);
  add(V3, 587, "v_cvt_scalef32_f16_bf8", B, B, F, N, scale_up<E::kBf8, E::kF16, 1>, kPartial);
  add(V3, 588, "v_cvt_scalef32_pk_fp4_f16", B, B, F, N, scale_down<E::kF16, E::kFp4, false, 2>, kPartial);
  add(V3, 589, "v_cvt_scalef32_pk_fp4_bf16", B, B, F, N, scale_down<E::kBf16, E::kFp4, false, 2>, kPartial);
  add(V3, 590, "v_cvt_scalef32_sr_pk_fp4_f16", B, B, B, F, scale_down<E::kF16, E::kFp4, true, 2>, kPartial);
  add(V3, 591, "v_cvt_scalef32_sr_pk_fp4_bf16", B, B, B, F, scale_down<E::kBf16, E::kFp4, true, 2>, kPartial);
  add(V3, 592, "v_cvt_scalef32_pk_f16_fp4", B, B, F, N, scale_up<E::kFp4, E::kF16, 2>);
  add(V3, 593, "v_cvt_scalef32_pk_bf16_fp4", B, B, F, N, scale_up<E::kFp4, E::kBf16, 2>);
  add(V3, 617, "v_cvt_scalef32_pk_bf16_fp8", B, B, F, N, scale_up<E::kFp8, E::kBf16, 2>);
  add(V3, 618, "v_cvt_scalef32_pk_bf16_bf8", B, B, F, N, scale_up<E::kBf8, E::kBf16, 2>);
  constexpr Type T6 = Type::kB192, T16 = Type::kB512, T32 = Type::kB1024;
  wide_form(594, "v_cvt_scalef32_2xpk16_fp6_f32", T6, T16, T16, F, convert_32<E::kF32, E::kFp6, false>);
  wide_form(595, "v_cvt_scalef32_2xpk16_bf6_f32", T6, T16, T16, F, convert_32<E::kF32, E::kBf6, false>);
  wide_form(596, "v_cvt_scalef32_sr_pk32_fp6_f32", T6, T32, B, F, convert_32<E::kF32, E::kFp6, true>);
  wide_form(597, "v_cvt_scalef32_sr_pk32_bf6_f32", T6, T32, B, F, convert_32<E::kF32, E::kBf6, true>);
  wide_form(598, "v_cvt_scalef32_pk32_f32_fp6", T32, T6, F, N, convert_32<E::kFp6, E::kF32, false>);
  wide_form(599, "v_cvt_scalef32_pk32_f32_bf6", T32, T6, F, N, convert_32<E::kBf6, E::kF32, false>);
  wide_form(600, "v_cvt_scalef32_pk32_fp6_f16", T6, T16, F, N, convert_32<E::kF16, E::kFp6, false>);
  wide_form(601, "v_cvt_scalef32_pk32_fp6_bf16", T6, T16, F, N, convert_32<E::kBf16, E::kFp6, false>);
  wide_form(602, "v_cvt_scalef32_pk32_bf6_f16", T6, T16, F, N, convert_32<E::kF16, E::kBf6, false>);
  wide_form(603, "v_cvt_scalef32_pk32_bf6_bf16", T6, T16, F, N, convert_32<E::kBf16, E::kBf6, false>);
  wide_form(604, "v_cvt_scalef32_sr_pk32_fp6_f16", T6, T16, B, F, convert_32<E::kF16, E::kFp6, true>);
  wide_form(605, "v_cvt_scalef32_sr_pk32_fp6_bf16", T6, T16, B, F, convert_32<E::kBf16, E::kFp6, true>);
  wide_form(606, "v_cvt_scalef32_sr_pk32_bf6_f16", T6, T16, B, F, convert_32<E::kF16, E::kBf6, true>);
  wide_form(607, "v_cvt_scalef32_sr_pk32_bf6_bf16", T6, T16, B, F, convert_32<E::kBf16, E::kBf6, true>);
  wide_form(608, "v_cvt_scalef32_pk32_f16_fp6", T16, T6, F, N, convert_32<E::kFp6, E::kF16, false>);
  wide_form(609, "v_cvt_scalef32_pk32_bf16_fp6", T16, T6, F, N, convert_32<E::kFp6, E::kBf16, false>);
  wide_form(610, "v_cvt_scalef32_pk32_f16_bf6", T16, T6, F, N, convert_32<E::kBf6, E::kF16, false>);
  wide_form(611, "v_cvt_scalef32_pk32_bf16_bf6", T16, T6, F, N, convert_32<E::kBf6, E::kBf16, false>);
  return made;
}

}  // namespace msa_ops::emulator::gfx950

// Matrix instructions: D = A * B + C. Products are exact and are added to the accumulator one by one in the order of
// k, each sum rounded to fp32 (fp64, i32). The manual leaves the order open.
#include <algorithm>
#include <cmath>

#include "forms.hpp"
#include "numbers.hpp"
#include "product.hpp"
#include "wave.hpp"

namespace msa_ops::emulator::gfx950 {
namespace {

constexpr unsigned kMaxK = 128;

enum class Kind { kF16, kBf16, kFp8Fp8, kFp8Bf8, kBf8Fp8, kBf8Bf8, kI8, kF32, kF64, kF8f6f4 };

struct Shape {
  unsigned number;
  const char* name;
  unsigned m, k, blocks;  // m = n
  Kind kind;
  unsigned a_dwords, d_dwords, passes;
};

constexpr Shape kShapes[] = {
    {45, "v_mfma_f32_16x16x128_f8f6f4", 16, 128, 1, Kind::kF8f6f4, 8, 4, 8},
    {46, "v_mfma_f32_32x32x64_f8f6f4", 32, 64, 1, Kind::kF8f6f4, 8, 16, 16},
    {53, "v_mfma_f32_16x16x32_bf16", 16, 32, 1, Kind::kBf16, 4, 4, 4},
    {54, "v_mfma_i32_16x16x64_i8", 16, 64, 1, Kind::kI8, 4, 4, 4},
    {55, "v_mfma_f32_32x32x16_bf16", 32, 16, 1, Kind::kBf16, 4, 16, 8},
    {56, "v_mfma_i32_32x32x32_i8", 32, 32, 1, Kind::kI8, 4, 16, 8},
    {64, "v_mfma_f32_32x32x1_2b_f32", 32, 1, 2, Kind::kF32, 1, 32, 16},
    {65, "v_mfma_f32_16x16x1_4b_f32", 16, 1, 4, Kind::kF32, 1, 16, 8},
    {66, "v_mfma_f32_4x4x1_16b_f32", 4, 1, 16, Kind::kF32, 1, 4, 2},
    {68, "v_mfma_f32_32x32x2_f32", 32, 2, 1, Kind::kF32, 1, 16, 16},
    {69, "v_mfma_f32_16x16x4_f32", 16, 4, 1, Kind::kF32, 1, 4, 8},
    {72, "v_mfma_f32_32x32x4_2b_f16", 32, 4, 2, Kind::kF16, 2, 32, 16},
    {73, "v_mfma_f32_16x16x4_4b_f16", 16, 4, 4, Kind::kF16, 2, 16, 8},
    {74, "v_mfma_f32_4x4x4_16b_f16", 4, 4, 16, Kind::kF16, 2, 4, 2},
    {76, "v_mfma_f32_32x32x8_f16", 32, 8, 1, Kind::kF16, 2, 16, 8},
    {77, "v_mfma_f32_16x16x16_f16", 16, 16, 1, Kind::kF16, 2, 4, 4},
    {80, "v_mfma_i32_32x32x4_2b_i8", 32, 4, 2, Kind::kI8, 1, 32, 16},
    {81, "v_mfma_i32_16x16x4_4b_i8", 16, 4, 4, Kind::kI8, 1, 16, 8},
    {82, "v_mfma_i32_4x4x4_16b_i8", 4, 4, 16, Kind::kI8, 1, 4, 2},
    {84, "v_mfma_f32_16x16x32_f16", 16, 32, 1, Kind::kF16, 4, 4, 4},
    {85, "v_mfma_f32_32x32x16_f16", 32, 16, 1, Kind::kF16, 4, 16, 8},
    {86, "v_mfma_i32_32x32x16_i8", 32, 16, 1, Kind::kI8, 2, 16, 8},
    {87, "v_mfma_i32_16x16x32_i8", 16, 32, 1, Kind::kI8, 2, 4, 4},
    {93, "v_mfma_f32_32x32x4_2b_bf16", 32, 4, 2, Kind::kBf16, 2, 32, 16},
    {94, "v_mfma_f32_16x16x4_4b_bf16", 16, 4, 4, Kind::kBf16, 2, 16, 8},
    {95, "v_mfma_f32_4x4x4_16b_bf16", 4, 4, 16, Kind::kBf16, 2, 4, 2},
    {96, "v_mfma_f32_32x32x8_bf16", 32, 8, 1, Kind::kBf16, 2, 16, 8},
    {97, "v_mfma_f32_16x16x16_bf16", 16, 16, 1, Kind::kBf16, 2, 4, 4},
    {110, "v_mfma_f64_16x16x4_f64", 16, 4, 1, Kind::kF64, 2, 8, 16},
    {111, "v_mfma_f64_4x4x4_4b_f64", 4, 4, 4, Kind::kF64, 2, 2, 4},
    {112, "v_mfma_f32_16x16x32_bf8_bf8", 16, 32, 1, Kind::kBf8Bf8, 2, 4, 4},
    {113, "v_mfma_f32_16x16x32_bf8_fp8", 16, 32, 1, Kind::kBf8Fp8, 2, 4, 4},
    {114, "v_mfma_f32_16x16x32_fp8_bf8", 16, 32, 1, Kind::kFp8Bf8, 2, 4, 4},
    {115, "v_mfma_f32_16x16x32_fp8_fp8", 16, 32, 1, Kind::kFp8Fp8, 2, 4, 4},
    {116, "v_mfma_f32_32x32x16_bf8_bf8", 32, 16, 1, Kind::kBf8Bf8, 2, 16, 8},
    {117, "v_mfma_f32_32x32x16_bf8_fp8", 32, 16, 1, Kind::kBf8Fp8, 2, 16, 8},
    {118, "v_mfma_f32_32x32x16_fp8_bf8", 32, 16, 1, Kind::kFp8Bf8, 2, 16, 8},
    {119, "v_mfma_f32_32x32x16_fp8_fp8", 32, 16, 1, Kind::kFp8Fp8, 2, 16, 8},
};

const Shape& shape_of(const Instruction& i) {
  static const std::array<const Shape*, 128> by_number = [] {
    std::array<const Shape*, 128> made{};
    for (const Shape& shape : kShapes) made[shape.number] = &shape;
    return made;
  }();
  return *by_number[i.form->number];
}

// Row of a result register in a lane; its column is lane % m.
unsigned row_of(const Shape& shape, unsigned lane, unsigned reg, unsigned& block) {
  if (shape.m == 4) {
    block = lane / 4;
    return reg;
  }
  if (shape.m == 16) {
    block = reg / 4;
    return 4 * (lane / 16) + reg % 4;
  }
  block = reg / 16;
  return 8 * (reg % 16 / 4) + 4 * (lane / 32) + reg % 4;
}

// Lane whose B a lane takes.
unsigned b_lane(unsigned layout, unsigned lane) {
  switch (layout) {
    case 1: return lane % 32;
    case 2: return lane % 32 + 32;
    case 3: return (lane + 16) % 64;
    case 4: return lane % 16;
    case 5: return lane % 16 + 16;
    case 6: return lane % 16 + 32;
    case 7: return lane % 16 + 48;
    default: return lane;
  }
}

// Where a row of one block of the result is: `lanes` of a register are its columns.
struct RowPlace {
  unsigned reg, lane;
};
RowPlace place_of(const Shape& shape, unsigned block, unsigned line) {
  if (shape.m == 4) return {line, 4 * block};
  if (shape.m == 16) return {4 * block + line % 4, line / 4 * 16};
  return {16 * block + line / 8 * 4 + line % 4, line / 4 % 2 * 32};
}
void gather_rows(const Wave& wave, const Operand& addend, const Shape& shape, unsigned block, float* c) {
  const unsigned m = shape.m;
  if (addend.kind != Operand::Kind::kVector) {
    std::fill(c, c + m * m, as_float(wave.value32(addend)));
    return;
  }
  for (unsigned line = 0; line < m; ++line) {
    const RowPlace place = place_of(shape, block, line);
    std::memcpy(c + line * m, wave.row(addend.index + place.reg) + place.lane, m * sizeof(float));
  }
}
void scatter_rows(Wave& wave, const Operand& destination, const Shape& shape, unsigned block, const float* c) {
  const unsigned m = shape.m;
  for (unsigned line = 0; line < m; ++line) {
    const RowPlace place = place_of(shape, block, line);
    std::uint32_t* const to = wave.row(destination.index + place.reg) + place.lane;
    for (unsigned j = 0; j < m; ++j) {
      const std::uint32_t bits = as_bits(c[line * m + j]);
      to[j] = is_nan(bits) ? kNan32 : bits;
    }
  }
}

struct Undefined {
  std::array<Mask, 32> result{};  // lanes of each result register without a value
  bool any = false;
  unsigned from = 0;  // a register without a value
};

bool all_defined(const Wave& wave, const Instruction& i) {
  for (unsigned at = 0; at < i.num_vector_reads; ++at) {
    if (wave.defined(i.vector_reads[at]) != kAllLanes) return false;
  }
  return true;
}

// What of the result depends on registers that nothing has written. Violation if a load is on its way to one.
Undefined find_undefined(const Wave& wave, const Instruction& i, const Shape& shape) {
  Undefined made;
  if (all_defined(wave, i)) return made;
  Mask lines_a = 0, lines_b = 0;  // bad lanes
  const auto lanes_of = [&](const Operand& operand) -> Mask {
    if (operand.kind != Operand::Kind::kVector) return 0;
    Mask bad = 0;
    for (unsigned r = operand.index; r < unsigned{operand.index} + operand.dwords; ++r) {
      const Mask missing = wave.without_accepted(r, ~wave.defined({static_cast<std::uint16_t>(r), 1}));
      if (missing != 0 && wave.is_pending(r, missing)) wave.report_undefined(r, missing);
      if (missing != 0) made.from = r;
      bad |= missing;
    }
    return bad;
  };
  lines_a = lanes_of(i.sources[0]);
  lines_b = lanes_of(i.sources[1]);
  if (i.scaled) {
    lines_a |= lanes_of(i.scales[0]);
    lines_b |= lanes_of(i.scales[1]);
  }
  lanes_of(i.sources[2]);
  if (lines_a == kAllLanes || lines_b == kAllLanes) {
    wave.report_undefined(lines_a == kAllLanes ? i.sources[0].index : i.sources[1].index, kAllLanes);
  }
  std::array<bool, 64> bad_a{}, bad_b{};
  for_lanes(lines_a, [&](unsigned lane) { bad_a[lane % shape.m] = true; });
  for_lanes(lines_b, [&](unsigned lane) { bad_b[lane % shape.m] = true; });
  for (unsigned reg = 0; reg < shape.d_dwords; ++reg) {
    Mask bad = 0;
    if (i.sources[2].kind == Operand::Kind::kVector)
      bad = ~wave.defined({static_cast<std::uint16_t>(i.sources[2].index + reg), 1});
    if (lines_a != 0 || lines_b != 0) {
      for (unsigned lane = 0; lane < kLanes; ++lane) {
        unsigned block = 0;
        const unsigned row = shape.kind == Kind::kF64 ? 0 : row_of(shape, lane, reg, block);
        if (bad_a[row] || bad_b[lane % shape.m] || (shape.kind == Kind::kF64)) bad |= Mask{1} << lane;
      }
    }
    made.result[reg] = bad;
    made.any = made.any || bad != 0;
  }
  return made;
}

void finish(Wave& wave, const Instruction& i, const Undefined& undefined) {
  for (unsigned reg = 0; reg < i.destination.dwords; ++reg) {
    if (!undefined.any) {
      wave.define(i.destination.index + reg, kAllLanes);
    } else {
      wave.undefine_from(i.destination.index + reg, undefined.result[reg], undefined.from);
      wave.define(i.destination.index + reg, ~undefined.result[reg]);
    }
  }
}

constexpr unsigned kMostLines = 32;

// Operands of a product, as fp32: [k][lines].
struct Operands {
  alignas(64) float a[kMostLines * kMaxK];
  alignas(64) float b[kMostLines * kMaxK];
  alignas(64) float c[kMostLines * kMostLines];
  alignas(64) float scales[2][kLanes];
  alignas(64) std::uint32_t moved[8][kLanes];  // B, its lanes moved
};
Operands& operands() {
  static thread_local Operands made;
  return made;
}

Element element_of(const Shape& shape, const Instruction& i, bool is_a) {
  switch (shape.kind) {
    case Kind::kF16: return Element::kF16;
    case Kind::kBf16: return Element::kBf16;
    case Kind::kFp8Fp8: return Element::kE4m3;
    case Kind::kBf8Bf8: return Element::kE5m2;
    case Kind::kFp8Bf8: return is_a ? Element::kE4m3 : Element::kE5m2;
    case Kind::kBf8Fp8: return is_a ? Element::kE5m2 : Element::kE4m3;
    case Kind::kF32: return Element::kF32;
    case Kind::kI8: return Element::kI8;
    default: break;
  }
  constexpr Element kFormats[] = {Element::kE4m3, Element::kE5m2, Element::kE2m3, Element::kE3m2, Element::kE2m1};
  return kFormats[std::min<unsigned>(is_a ? i.broadcast_size : i.b_layout, 4)];
}

unsigned bits_of(Element element) {
  switch (element) {
    case Element::kF32: return 32;
    case Element::kF16: case Element::kBf16: return 16;
    case Element::kE2m3: case Element::kE3m2: return 6;
    case Element::kE2m1: return 4;
    default: return 8;
  }
}

OperandPlace place_of_operand(const Wave& wave, const Instruction& i, const Shape& shape, bool is_a, unsigned block) {
  const bool mixed = shape.kind == Kind::kF8f6f4;
  const std::uint32_t* rows = wave.row(i.sources[is_a ? 0 : 1].index);
  if (!is_a && !mixed && i.b_layout != 0) {
    Operands& own = operands();
    for (unsigned word = 0; word < shape.a_dwords; ++word) {
      for (unsigned lane = 0; lane < kLanes; ++lane)
        own.moved[word][lane] = rows[word * kLanes + b_lane(i.b_layout, lane)];
    }
    rows = own.moved[0];
  }
  const Element element = element_of(shape, i, is_a);
  const unsigned groups = shape.blocks > 1 ? 1 : kLanes / shape.m;
  const unsigned count = shape.k / groups;
  // 8-bit elements of the wide shapes come as two runs of 16 that are half of k apart.
  const unsigned run = mixed && bits_of(element) == 8 ? 16 : count;
  return {element, rows + (shape.blocks > 1 ? block * shape.m : 0), shape.m, groups, count * bits_of(element) / 32,
          run,     nullptr};
}

// E8M0 scales of the lanes, each of which is that of its line for 32 elements.
struct Powers {
  int least = 0, most = 0;  // of 2, and 0
};
void read_scales(const Wave& wave, const Instruction& i, unsigned which, float* scales, Powers& powers) {
  const Operand& operand = i.scales[which];
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    const std::uint32_t word =
        operand.kind == Operand::Kind::kVector ? wave.row(operand.index)[lane] : wave.value32(operand);
    const unsigned code = word >> (8 * i.scale_bytes[which]) & 255;
    scales[lane] = as_float(code == 255 ? kNan32 : code == 0 ? 0x400000U : code << 23);
    if (code == 255) continue;
    powers.least = std::min(powers.least, static_cast<int>(code) - 127);
    powers.most = std::max(powers.most, static_cast<int>(code) - 127);
  }
}

// Scales with which elements leave the range of fp32: in fp64, whose sums are rounded to odd before they become fp32,
// so that there is one rounding a step.
void multiply_extreme(unsigned m, unsigned k_count, const Operands& own, float* c) {
  for (unsigned row = 0; row < m; ++row) {
    for (unsigned column = 0; column < m; ++column) {
      float& sum = c[row * m + column];
      for (unsigned k = 0; k < k_count; ++k) {
        const double a = static_cast<double>(own.a[k * m + row]) * static_cast<double>(own.scales[0][k / 32 * m + row]);
        const double b =
            static_cast<double>(own.b[k * m + column]) * static_cast<double>(own.scales[1][k / 32 * m + column]);
        const double product = a * b, before = sum;
        double made = product + before;
        const double part = made - product;
        const double error = (product - (made - part)) + (before - part);
        if (error != 0 && std::isfinite(made) && (as_bits(made) & 1) == 0)
          made = std::nextafter(made, error > 0 ? HUGE_VAL : -HUGE_VAL);
        sum = static_cast<float>(made);
      }
    }
  }
}

void multiply_floats(Wave& wave, const Instruction& i, const Shape& shape) {
  Operands& own = operands();
  const Product& units = product();
  const unsigned m = shape.m;
  const bool broadcasts = shape.kind != Kind::kF8f6f4 && i.broadcast_size != 0;
  Powers powers;
  for (unsigned which = 0; i.scaled && which < 2; ++which) read_scales(wave, i, which, own.scales[which], powers);
  // Elements are below 2^16, and those times the least scale are still numbers of fp32.
  const bool extreme = powers.most > 111;
  for (unsigned block = 0; block < shape.blocks; ++block) {
    const unsigned a_block = broadcasts ? (block >> i.broadcast_size << i.broadcast_size) + i.broadcast_id : block;
    OperandPlace a = place_of_operand(wave, i, shape, true, a_block);
    OperandPlace b = place_of_operand(wave, i, shape, false, block);
    if (i.scaled && !extreme) {
      a.scales = own.scales[0];
      b.scales = own.scales[1];
    }
    units.unpack(a, shape.k, own.a);
    units.unpack(b, shape.k, own.b);
    const Operand& addend = i.sources[2];
    gather_rows(wave, addend, shape, block, own.c);
    if (i.scaled && (addend.absolute || addend.negate)) {
      for (unsigned e = 0; e < m * m; ++e) {
        if (addend.absolute) own.c[e] = std::fabs(own.c[e]);
        if (addend.negate) own.c[e] = -own.c[e];
      }
    }
    if (extreme) {
      multiply_extreme(m, shape.k, own, own.c);
    } else {
      bool exact = shape.kind != Kind::kF32 && powers.least >= -40 && powers.most <= 40;
      if (!units.fused && shape.kind == Kind::kBf16)
        exact = !units.is_extreme(own.a, shape.k * m) && !units.is_extreme(own.b, shape.k * m);
      units.multiply(m, own.a, own.b, own.c, shape.k, exact);
    }
    scatter_rows(wave, i.destination, shape, block, own.c);
  }
}

// fp32 holds the sum of 64 products of bytes, so that only the addend needs integers.
void multiply_integers(Wave& wave, const Instruction& i, const Shape& shape) {
  Operands& own = operands();
  const unsigned m = shape.m;
  const Operand& addend = i.sources[2];
  for (unsigned block = 0; block < shape.blocks; ++block) {
    const unsigned a_block =
        i.broadcast_size != 0 ? (block >> i.broadcast_size << i.broadcast_size) + i.broadcast_id : block;
    product().unpack(place_of_operand(wave, i, shape, true, a_block), shape.k, own.a);
    product().unpack(place_of_operand(wave, i, shape, false, block), shape.k, own.b);
    std::fill(own.c, own.c + m * m, 0.0F);
    product().multiply(m, own.a, own.b, own.c, shape.k, true);
    for (unsigned line = 0; line < m; ++line) {
      const RowPlace place = place_of(shape, block, line);
      std::uint32_t* const to = wave.row(i.destination.index + place.reg) + place.lane;
      const std::uint32_t* const from =
          addend.kind == Operand::Kind::kVector ? wave.row(addend.index + place.reg) + place.lane : nullptr;
      for (unsigned j = 0; j < m; ++j) {
        const auto sum = static_cast<std::uint32_t>(static_cast<std::int32_t>(own.c[line * m + j]));
        to[j] = (from != nullptr ? from[j] : wave.value32(addend)) + sum;
      }
    }
  }
}

void multiply_doubles(Wave& wave, const Instruction& i, const Shape& shape) {
  const auto value = [&](const Operand& operand, unsigned pair, unsigned lane) {
    if (operand.kind != Operand::Kind::kVector) return as_double(wave.value64(operand));
    return as_double(wave.row(operand.index + 2 * pair)[lane] |
                     static_cast<std::uint64_t>(wave.row(operand.index + 2 * pair + 1)[lane]) << 32);
  };
  // b_layout holds signs: bit 0 of A, 1 of B, 2 of C.
  const double sign_ab = ((i.b_layout ^ i.b_layout >> 1) & 1) != 0 ? -1 : 1, sign_c = (i.b_layout & 4) != 0 ? -1 : 1;
  std::uint64_t results[4][kLanes];
  const unsigned pairs = shape.d_dwords / 2;
  for (unsigned pair = 0; pair < pairs; ++pair) {
    for (unsigned lane = 0; lane < kLanes; ++lane) {
      // 16x16: row 4 * pair + lane / 16; 4x4 in four blocks: 16 lanes a row, four a block.
      const unsigned column = lane % shape.m;
      const unsigned row = shape.m == 16 ? 4 * pair + lane / 16 : lane / 16;
      const unsigned block = shape.m == 16 ? 0 : lane / 4 % 4;
      double sum = sign_c * value(i.sources[2], pair, lane);
      for (unsigned k = 0; k < 4; ++k) {
        const unsigned lane_a = shape.m == 16 ? 16 * k + row : 16 * k + 4 * block + row;
        const unsigned lane_b = shape.m == 16 ? 16 * k + column : 16 * k + 4 * block + column;
        sum = std::fma(sign_ab * value(i.sources[0], 0, lane_a), value(i.sources[1], 0, lane_b), sum);
      }
      results[pair][lane] = as_bits(sum);
    }
  }
  for (unsigned pair = 0; pair < pairs; ++pair) {
    for (unsigned lane = 0; lane < kLanes; ++lane) {
      wave.row(i.destination.index + 2 * pair)[lane] = static_cast<std::uint32_t>(results[pair][lane]);
      wave.row(i.destination.index + 2 * pair + 1)[lane] = static_cast<std::uint32_t>(results[pair][lane] >> 32);
    }
  }
}

void matrix(Wave& wave, const Instruction& i) {
  const Shape& shape = shape_of(i);
  wave.check_scalars(i);
  const Undefined undefined = find_undefined(wave, i, shape);
  switch (shape.kind) {
    case Kind::kI8: multiply_integers(wave, i, shape); break;
    case Kind::kF64: multiply_doubles(wave, i, shape); break;
    default: multiply_floats(wave, i, shape); break;
  }
  finish(wave, i, undefined);
}

Type operand_type(unsigned dwords) {
  return dwords == 1 ? Type::kB32 : dwords == 2 ? Type::kB64 : dwords == 4 ? Type::kB128 : Type::kB256;
}

}  // namespace

MatrixWork matrix_work(const Form& form) {
  if (form.encoding != Encoding::kMfma) return {"", 0};
  for (const Shape& shape : kShapes) {
    if (shape.number != form.number) continue;
    const std::uint64_t flops = std::uint64_t{2} * shape.m * shape.m * shape.k * shape.blocks;
    switch (shape.kind) {
      case Kind::kF16: case Kind::kBf16: return {"f16", flops};
      case Kind::kF32: return {"f32", flops};
      case Kind::kF64: return {"f64", flops};
      case Kind::kI8: return {"i8", flops};
      default: return {"f8f6f4", flops};
    }
  }
  return {"", 0};
}

std::vector<Form> matrix_forms() {
  std::vector<Form> made;
  for (const Shape& shape : kShapes) {
    const Type operand = operand_type(shape.a_dwords);
    const Type result = shape.kind == Kind::kI8 ? Type::kB32 : shape.kind == Kind::kF64 ? Type::kF64 : Type::kF32;
    made.push_back({Encoding::kMfma,
                    static_cast<std::uint16_t>(shape.number),
                    shape.name,
                    result,
                    {operand, operand, result},
                    matrix,
                    nullptr,
                    kSelfChecked | kIgnoresExec | shape.passes << kPassesShift | shape.d_dwords << 24});
  }
  return made;
}

}  // namespace msa_ops::emulator::gfx950

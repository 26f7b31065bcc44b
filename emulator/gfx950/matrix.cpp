// Matrix instructions: D = A * B + C. Products are exact and are added to the accumulator one by one in the order of
// k, each sum rounded to fp32 (fp64, i32). The manual leaves the order open.
#include <algorithm>
#include <cmath>

#include "forms.hpp"
#include "numbers.hpp"
#include "wave.hpp"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define MSA_OPS_CLONES __attribute__((target_clones("default", "arch=haswell")))
#else
#define MSA_OPS_CLONES
#endif

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

// Row (of A) or column (of B) and first k of what a lane holds; elements are contiguous in k, with one exception.
struct LaneMap {
  unsigned line, k, block;
};
LaneMap lane_map(const Shape& shape, unsigned lane, unsigned elements) {
  if (shape.blocks > 1) return {lane % shape.m, 0, lane / shape.m};
  return {lane % shape.m, lane / shape.m * elements, 0};
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

struct Decoders {
  float fp8[256], bf8[256], fp6[64], bf6[64], fp4[16];
  Decoders() {
    for (unsigned i = 0; i < 256; ++i) fp8[i] = static_cast<float>(decode_double(kE4m3, i));
    for (unsigned i = 0; i < 256; ++i) bf8[i] = static_cast<float>(decode_double(kE5m2, i));
    for (unsigned i = 0; i < 64; ++i) fp6[i] = static_cast<float>(decode_double(kE2m3, i));
    for (unsigned i = 0; i < 64; ++i) bf6[i] = static_cast<float>(decode_double(kE3m2, i));
    for (unsigned i = 0; i < 16; ++i) fp4[i] = static_cast<float>(decode_double(kE2m1, i));
  }
};
const Decoders& decoders() {
  static const Decoders made;
  return made;
}

// Elements of a lane as fp32, in the order in which the registers hold them.
void unpack_bytes(const std::uint32_t* rows, unsigned lane, unsigned dwords, const float* table, float* out) {
  for (unsigned word = 0; word < dwords; ++word) {
    const std::uint32_t bits = rows[word * kLanes + lane];
    for (unsigned byte = 0; byte < 4; ++byte) out[4 * word + byte] = table[bits >> (8 * byte) & 0xff];
  }
}
void unpack_halves(const std::uint32_t* rows, unsigned lane, unsigned dwords, bool bfloat, float* out) {
  for (unsigned word = 0; word < dwords; ++word) {
    const std::uint32_t bits = rows[word * kLanes + lane];
    out[2 * word] = bfloat ? bfloat_to(bits & 0xffff) : half_to(bits & 0xffff);
    out[2 * word + 1] = bfloat ? bfloat_to(bits >> 16) : half_to(bits >> 16);
  }
}
void unpack_sixes(const std::uint32_t* rows, unsigned lane, const float* table, float* out) {
  for (unsigned e = 0; e < 32; ++e) {
    const unsigned bit = 6 * e;
    std::uint64_t both = rows[bit / 32 * kLanes + lane];
    if (bit % 32 > 26) both |= static_cast<std::uint64_t>(rows[(bit / 32 + 1) * kLanes + lane]) << 32;
    out[e] = table[both >> (bit % 32) & 63];
  }
}
void unpack_fours(const std::uint32_t* rows, unsigned lane, float* out) {
  for (unsigned e = 0; e < 32; ++e) out[e] = decoders().fp4[rows[e / 8 * kLanes + lane] >> (4 * (e % 8)) & 15];
}

unsigned unpack(const Wave& wave, const Shape& shape, const Operand& operand, bool is_a, unsigned format, unsigned lane,
                float* out) {
  const std::uint32_t* const rows = wave.row(operand.index);
  const Decoders& d = decoders();
  switch (shape.kind) {
    case Kind::kF16: unpack_halves(rows, lane, shape.a_dwords, false, out); return 2 * shape.a_dwords;
    case Kind::kBf16: unpack_halves(rows, lane, shape.a_dwords, true, out); return 2 * shape.a_dwords;
    case Kind::kFp8Fp8: unpack_bytes(rows, lane, shape.a_dwords, d.fp8, out); return 4 * shape.a_dwords;
    case Kind::kBf8Bf8: unpack_bytes(rows, lane, shape.a_dwords, d.bf8, out); return 4 * shape.a_dwords;
    case Kind::kFp8Bf8: unpack_bytes(rows, lane, shape.a_dwords, is_a ? d.fp8 : d.bf8, out); return 4 * shape.a_dwords;
    case Kind::kBf8Fp8: unpack_bytes(rows, lane, shape.a_dwords, is_a ? d.bf8 : d.fp8, out); return 4 * shape.a_dwords;
    case Kind::kF32: out[0] = as_float(rows[lane]); return 1;
    default: break;
  }
  switch (format) {
    case 0: unpack_bytes(rows, lane, 8, d.fp8, out); break;
    case 1: unpack_bytes(rows, lane, 8, d.bf8, out); break;
    case 2: unpack_sixes(rows, lane, d.fp6, out); break;
    case 3: unpack_sixes(rows, lane, d.bf6, out); break;
    default: unpack_fours(rows, lane, out); break;
  }
  return 32;
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

template <unsigned n>
struct VectorOf {
  typedef float Type __attribute__((vector_size(n * sizeof(float))));
};

// c[m][n] += a[m][k] * b[k][n], k ascending.
template <unsigned n>
inline __attribute__((always_inline)) void multiply(const float* a, const float* b, float* c, unsigned k_count) {
  using V = typename VectorOf<n>::Type;
  const V* const columns = reinterpret_cast<const V*>(b);
  V* const sums = reinterpret_cast<V*>(c);
  constexpr unsigned rows = n == 16 ? 4 : n == 4 ? 4 : 2;
  for (unsigned i = 0; i < n; i += rows) {
    V sum[rows];
    for (unsigned r = 0; r < rows; ++r) sum[r] = sums[i + r];
    for (unsigned k = 0; k < k_count; ++k) {
      const V column = columns[k];
      for (unsigned r = 0; r < rows; ++r) sum[r] += a[(i + r) * kMaxK + k] * column;
    }
    for (unsigned r = 0; r < rows; ++r) sums[i + r] = sum[r];
  }
}
MSA_OPS_CLONES void multiply16(const float* a, const float* b, float* c, unsigned k) { multiply<16>(a, b, c, k); }
MSA_OPS_CLONES void multiply32(const float* a, const float* b, float* c, unsigned k) { multiply<32>(a, b, c, k); }
MSA_OPS_CLONES void multiply4(const float* a, const float* b, float* c, unsigned k) { multiply<4>(a, b, c, k); }

// The same for products that fp32 does not hold exactly: one rounding a step.
MSA_OPS_CLONES void multiply_wide(unsigned n, const float* a, const float* b, float* c, unsigned k_count) {
  for (unsigned i = 0; i < n; ++i) {
    for (unsigned k = 0; k < k_count; ++k) {
      for (unsigned j = 0; j < n; ++j) c[i * n + j] = std::fma(a[i * kMaxK + k], b[k * n + j], c[i * n + j]);
    }
  }
}

// Whether products of such numbers may leave the range in which fp32 has them exactly.
bool is_extreme(const float* values, unsigned count) {
  std::uint32_t found = 0;
  for (unsigned i = 0; i < count; ++i) {
    const std::uint32_t bits = as_bits(values[i]) & 0x7fffffff;
    // Outside 2^-55 .. 2^55, and not zero.
    found |= static_cast<std::uint32_t>((bits >> 23) - 72 > 110) & static_cast<std::uint32_t>(bits != 0);
  }
  return found != 0;
}

// The accumulator of a form of one block: rows of the result are runs of m lanes.
unsigned row_of_run(unsigned m, unsigned reg, unsigned run) {
  return m == 16 ? 4 * run + reg : 8 * (reg / 4) + 4 * run + reg % 4;
}
void gather_rows(const Wave& wave, const Operand& addend, unsigned m, unsigned regs, float* c) {
  const float constant = addend.kind == Operand::Kind::kVector ? 0.0F : as_float(wave.value32(addend));
  for (unsigned reg = 0; reg < regs; ++reg) {
    for (unsigned run = 0; run < kLanes / m; ++run) {
      float* const to = c + row_of_run(m, reg, run) * m;
      if (addend.kind == Operand::Kind::kVector)
        std::memcpy(to, wave.row(addend.index + reg) + run * m, m * sizeof(float));
      else std::fill(to, to + m, constant);
    }
  }
}
void scatter_rows(Wave& wave, unsigned first, unsigned m, unsigned regs, const float* c, const bool* nan_row,
                  const bool* nan_column) {
  for (unsigned reg = 0; reg < regs; ++reg) {
    std::uint32_t* const to = wave.row(first + reg);
    for (unsigned run = 0; run < kLanes / m; ++run) {
      const unsigned line = row_of_run(m, reg, run);
      for (unsigned j = 0; j < m; ++j) {
        const std::uint32_t bits = as_bits(c[line * m + j]);
        to[run * m + j] = is_nan(bits) || nan_row[line] || nan_column[j] ? kNan32 : bits;
      }
    }
  }
}

struct Undefined {
  std::array<Mask, 32> result{};  // lanes of each result register without a value
  bool any = false;
  unsigned from = 0;  // a register without a value
};

// What of the result depends on registers that nothing has written. Violation if a load is on its way to one.
Undefined find_undefined(const Wave& wave, const Instruction& i, const Shape& shape) {
  Undefined made;
  Mask lines_a = 0, lines_b = 0;  // bad lanes
  const auto lanes_of = [&](const Operand& operand) -> Mask {
    if (operand.kind != Operand::Kind::kVector) return 0;
    Mask bad = 0;
    for (unsigned r = operand.index; r < unsigned{operand.index} + operand.dwords; ++r) {
      const Mask missing = ~wave.defined({static_cast<std::uint16_t>(r), 1});
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

void multiply_floats(Wave& wave, const Instruction& i, const Shape& shape) {
  alignas(64) static thread_local float a[32 * kMaxK];
  alignas(64) static thread_local float b[32 * kMaxK];  // [k][n]
  alignas(64) static thread_local float c[32 * 32];
  const unsigned m = shape.m;
  const bool mixed = shape.kind == Kind::kF8f6f4;
  const unsigned b_layout = mixed ? 0 : i.b_layout;
  bool wide = shape.kind == Kind::kF32;
  float lane_values[32];
  for (unsigned block = 0; block < shape.blocks; ++block) {
    unsigned a_block = block;
    if (!mixed && i.broadcast_size != 0) a_block = (block >> i.broadcast_size << i.broadcast_size) + i.broadcast_id;
    bool nan_row[32] = {}, nan_column[32] = {};
    for (unsigned lane = 0; lane < kLanes; ++lane) {
      for (unsigned which = 0; which < 2; ++which) {
        const Operand& operand = i.sources[which];
        const unsigned format = which == 0 ? i.broadcast_size : i.b_layout;
        const unsigned from = which == 0 ? lane : b_lane(b_layout, lane);
        const LaneMap map = lane_map(shape, lane, 1);
        if (shape.blocks > 1 && map.block != (which == 0 ? a_block : block)) continue;
        const unsigned count = unpack(wave, shape, operand, which == 0, format, from, lane_values);
        const unsigned group = shape.blocks > 1 ? 0 : lane / m;
        // 8-bit elements of the wide shapes come as two runs of 16 that are half of k apart.
        const bool two_runs = mixed && format < 2;
        for (unsigned e = 0; e < count; ++e) {
          const unsigned k = two_runs ? e / 16 * (shape.k / 2) + group * 16 + e % 16 : group * count + e;
          if (which == 0) a[map.line * kMaxK + k] = lane_values[e];
          else b[k * m + map.line] = lane_values[e];
        }
      }
    }
    if (i.scaled) {
      for (unsigned which = 0; which < 2; ++which) {
        const Operand& operand = i.scales[which];
        for (unsigned lane = 0; lane < kLanes; ++lane) {
          // A byte of the lane's register is the scale of its line for 32 elements.
          const std::uint32_t word =
              operand.kind == Operand::Kind::kVector ? wave.row(operand.index)[lane] : wave.value32(operand);
          const unsigned code = word >> (8 * i.scale_bytes[which]) & 255;
          const unsigned line = lane % m, first = lane / m * 32;
          if (code == 255) (which == 0 ? nan_row : nan_column)[line] = true;
          const int power = static_cast<int>(code) - 127;
          if (power == 0 || code == 255) continue;
          if (std::abs(power) > 40) wide = true;
          const auto scale = static_cast<float>(std::ldexp(1.0, power));
          for (unsigned k = first; k < first + 32; ++k) (which == 0 ? a[line * kMaxK + k] : b[k * m + line]) *= scale;
        }
      }
    }
    const unsigned regs = shape.d_dwords / (m == 4 ? 1 : shape.blocks), first_reg = m == 4 ? 0 : block * regs;
    const Operand& addend = i.sources[2];
    const bool one_block = shape.blocks == 1;
    if (one_block) gather_rows(wave, addend, m, regs, c);
    if (i.scaled && (addend.absolute || addend.negate)) {
      for (unsigned e = 0; e < m * m; ++e) {
        if (addend.absolute) c[e] = std::fabs(c[e]);
        if (addend.negate) c[e] = -c[e];
      }
    }
    const float constant = addend.kind == Operand::Kind::kVector ? 0.0F : as_float(wave.value32(addend));
    for (unsigned reg = first_reg; !one_block && reg < first_reg + regs; ++reg) {
      const std::uint32_t* const row = addend.kind == Operand::Kind::kVector ? wave.row(addend.index + reg) : nullptr;
      for (unsigned lane = 0; lane < kLanes; ++lane) {
        unsigned of = 0;
        const unsigned line = row_of(shape, lane, reg, of);
        if (of != block) continue;
        c[line * m + lane % m] = row != nullptr ? as_float(row[lane]) : constant;
      }
    }
    if (!wide && shape.kind == Kind::kBf16) {
      for (unsigned line = 0; line < m && !wide; ++line) wide = is_extreme(a + line * kMaxK, shape.k);
      wide = wide || is_extreme(b, shape.k * m);
    }
    if (wide) multiply_wide(m, a, b, c, shape.k);
    else if (m == 16) multiply16(a, b, c, shape.k);
    else if (m == 32) multiply32(a, b, c, shape.k);
    else multiply4(a, b, c, shape.k);
    if (one_block) scatter_rows(wave, i.destination.index, m, regs, c, nan_row, nan_column);
    for (unsigned reg = first_reg; !one_block && reg < first_reg + regs; ++reg) {
      std::uint32_t* const row = wave.row(i.destination.index + reg);
      for (unsigned lane = 0; lane < kLanes; ++lane) {
        unsigned of = 0;
        const unsigned line = row_of(shape, lane, reg, of);
        if (of != block) continue;
        const float value = c[line * m + lane % m];
        row[lane] = std::isnan(value) || nan_row[line] || nan_column[lane % m] ? kNan32 : as_bits(value);
      }
    }
  }
}

void multiply_integers(Wave& wave, const Instruction& i, const Shape& shape) {
  alignas(64) static thread_local std::int32_t a[32][kMaxK];
  alignas(64) static thread_local std::int32_t b[kMaxK][32];
  const unsigned m = shape.m, per_lane = 4 * shape.a_dwords;
  std::uint32_t results[32][kLanes];
  for (unsigned block = 0; block < shape.blocks; ++block) {
    const unsigned a_block =
        i.broadcast_size != 0 ? (block >> i.broadcast_size << i.broadcast_size) + i.broadcast_id : block;
    for (unsigned lane = 0; lane < kLanes; ++lane) {
      const LaneMap map = lane_map(shape, lane, per_lane);
      const unsigned from = b_lane(i.b_layout, lane);
      for (unsigned e = 0; e < per_lane; ++e) {
        const auto byte_of = [&](const Operand& operand, unsigned of) {
          return static_cast<std::int32_t>(
              static_cast<std::int8_t>(wave.row(operand.index + e / 4)[of] >> (8 * (e % 4))));
        };
        if (shape.blocks == 1 || map.block == a_block) a[map.line][map.k + e] = byte_of(i.sources[0], lane);
        if (shape.blocks == 1 || map.block == block) b[map.k + e][map.line] = byte_of(i.sources[1], from);
      }
    }
    const Operand& addend = i.sources[2];
    for (unsigned reg = 0; reg < shape.d_dwords; ++reg) {
      for (unsigned lane = 0; lane < kLanes; ++lane) {
        unsigned of = 0;
        const unsigned line = row_of(shape, lane, reg, of);
        if (of != block) continue;
        std::uint32_t sum =
            addend.kind == Operand::Kind::kVector ? wave.row(addend.index + reg)[lane] : wave.value32(addend);
        for (unsigned k = 0; k < shape.k; ++k) sum += static_cast<std::uint32_t>(a[line][k] * b[k][lane % m]);
        results[reg][lane] = sum;
      }
    }
  }
  for (unsigned reg = 0; reg < shape.d_dwords; ++reg)
    std::copy_n(results[reg], kLanes, wave.row(i.destination.index + reg));
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

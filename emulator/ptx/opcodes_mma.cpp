// mma.sync: products of matrices that the lanes of a warp hold in pieces.
//
// In all shapes of 8 columns but m8n8k4 of fp16 a lane is (row, part) = (lane / 4, lane % 4), and a register holds E
// elements beside each other along k: of A row `row`, or `row + 8` in odd registers of 16 rows, and columns from
// E * part, 4 E further in each following register of the same row; of B the same with columns of B as rows of A; of C
// and D row `row` or `row + 8`, columns 2 * part and 2 * part + 1. Of a sparse A registers hold the elements that are
// kept, half as many (sparsity.hpp).
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "../matrix/formats.hpp"
#include "../matrix/product.hpp"
#include "aligned.hpp"
#include "host_rounding.hpp"
#include "lanes.hpp"
#include "opcodes.hpp"
#include "sparsity.hpp"

namespace msa_ops::emulator::ptx {
namespace {

using matrix::Element;

struct Mma {
  unsigned m, k;
  Element a, b;
  enum class Sum { kF32, kF16, kF64, kS32, kXor, kAnd } sum;
  bool saturate;
  int rounding = FE_TONEAREST;  // of fp64
  enum class Sparse { kNo, kAny, kOrdered } sparse = Sparse::kNo;  // kOrdered: of ascending metadata
  unsigned kept() const { return sparse == Sparse::kNo ? k : k / 2; }  // of a row of A
  unsigned a_registers() const { return m * kept() * width() / (32 * register_bits()); }
  unsigned b_registers() const { return 8 * k * width() / (32 * register_bits()); }
  unsigned sums() const { return m / 8 * (sum == Sum::kF16 ? 1 : 2); }  // registers of C and D
  unsigned width() const { return matrix::bits_of(a); }
  unsigned register_bits() const { return sum == Sum::kF64 ? 64 : 32; }
};

constexpr unsigned kColumns = 8;
constexpr unsigned kMostRows = 16;
constexpr unsigned kMostDepth = 128;  // of elements that are not single bits

std::vector<Mma>& kinds() {
  static std::vector<Mma> made;
  return made;
}

// Row major [rows][k] of one operand, whose elements fill a register without gaps.
template <typename Register>
void gather(const PtxWarp& warp, const Operand* registers, unsigned count, unsigned rows, unsigned bytes_a_row,
            void* out) {
  const unsigned halves = rows / 8;
  for (unsigned r = 0; r < count; ++r) {
    const auto* values = warp.row<Register>(registers[r]);
    auto* at = static_cast<unsigned char*>(out) + r % halves * 8 * bytes_a_row + r / halves * 4 * sizeof(Register);
    for (unsigned lane = 0; lane < kLanes; ++lane) {
      std::memcpy(at + lane / 4 * bytes_a_row + lane % 4 * sizeof(Register), &values[lane], sizeof(Register));
    }
  }
}

void numbers_from(Element, const unsigned char* packed, std::size_t count, double* out) {
  std::memcpy(out, packed, count * sizeof(double));
}
void numbers_from(Element element, const unsigned char* packed, std::size_t count, float* out) {
  matrix::floats_from_packed(element, packed, out, count);
}
void numbers_from(Element element, const unsigned char* packed, std::size_t count, std::int32_t* out) {
  matrix::integers_from_packed(element, packed, out, count);
}

template <typename Sum>
void gather_sums(const PtxWarp& warp, const Mma& mma, const Operand* registers, Sum* out) {
  for (unsigned r = 0; r < mma.m / 4; ++r) {
    const Sum* values = warp.row<Sum>(registers[r]);
    for (unsigned lane = 0; lane < kLanes; ++lane) {
      out[(lane / 4 + r / 2 * 8) * kColumns + lane % 4 * 2 + r % 2] = values[lane];
    }
  }
}

template <typename Sum>
void scatter_sums(PtxWarp& warp, const Mma& mma, const Operand* registers, const Sum* in) {
  for (unsigned r = 0; r < mma.m / 4; ++r) {
    Sum* values = warp.out<Sum>(registers[r]);
    for (unsigned lane = 0; lane < kLanes; ++lane) {
      values[lane] = in[(lane / 4 + r / 2 * 8) * kColumns + lane % 4 * 2 + r % 2];
    }
  }
}

void gather_halves(const PtxWarp& warp, const Mma& mma, const Operand* registers, float* out) {
  std::uint16_t halves[kMostRows * kColumns];
  gather<std::uint32_t>(warp, registers, mma.sums(), mma.m, kColumns * 2, halves);
  matrix::floats_from(Element::kF16, halves, out, mma.m * kColumns);
}

void scatter_halves(PtxWarp& warp, const Mma& mma, const Operand* registers, const float* in) {
  for (unsigned r = 0; r < mma.sums(); ++r) {
    auto* values = warp.out<std::uint32_t>(registers[r]);
    for (unsigned lane = 0; lane < kLanes; ++lane) {
      const float* pair = in + (lane / 4 + r * 8) * kColumns + lane % 4 * 2;
      values[lane] = std::uint32_t{matrix::half_from(pair[1])} << 16 | matrix::half_from(pair[0]);
    }
  }
}

struct Operands {
  const Operand *d, *a, *b, *c;
};

Operands operands_of(const Instruction& i, const Mma& mma) {
  const Operand* d = i.operands.data();
  const Operand* a = d + mma.sums();
  const Operand* b = a + mma.a_registers();
  return {d, a, b, b + mma.b_registers()};
}

// A as [m][kept] and B as [k][8].
template <typename Number>
void gather_operands(const PtxWarp& warp, const Mma& mma, const Operands& operands, Number* a, Number* b) {
  using Register = std::conditional_t<std::is_same_v<Number, double>, double, std::uint32_t>;
  alignas(8) unsigned char codes[kMostRows * kMostDepth * 8];
  Number columns[kColumns * kMostDepth];
  gather<Register>(warp, operands.a, mma.a_registers(), mma.m, mma.kept() * mma.width() / 8, codes);
  numbers_from(mma.a, codes, mma.m * mma.kept(), a);
  gather<Register>(warp, operands.b, mma.b_registers(), kColumns, mma.k * mma.width() / 8, codes);
  numbers_from(mma.b, codes, kColumns * mma.k, columns);
  for (unsigned k = 0; k < mma.k; ++k) {
    for (unsigned n = 0; n < kColumns; ++n) b[k * kColumns + n] = columns[n * mma.k + k];
  }
}

// A sum has no value if something of its row of A, of its column of B, or what it adds to has none.
void spread_undefined(PtxWarp& warp, const Instruction& i, const Mma& mma) {
  const Operands operands = operands_of(i, mma);
  Mask rows = 0, columns = 0;
  for (unsigned r = 0; r < mma.a_registers(); ++r) {
    for_lanes(warp.undefined(operands.a[r]), [&](unsigned lane) { rows |= 1U << (lane / 4 + r % (mma.m / 8) * 8); });
  }
  for (unsigned r = 0; r < mma.b_registers(); ++r) {
    for_lanes(warp.undefined(operands.b[r]), [&](unsigned lane) { columns |= 1U << lane / 4; });
  }
  const bool halves = mma.sum == Mma::Sum::kF16;
  for (unsigned r = 0; r < mma.sums(); ++r) {
    Mask without = warp.undefined(operands.c[r]);
    for (unsigned lane = 0; lane < kLanes; ++lane) {
      const unsigned row = lane / 4 + (halves ? r : r / 2) * 8, column = lane % 4 * 2;
      const bool one = (columns >> column & 1) != 0, other = (columns >> (column + 1) & 1) != 0;
      const bool in_column = halves ? one || other : r % 2 == 0 ? one : other;
      if (in_column || (rows >> row & 1) != 0) without |= Mask{1} << lane;
    }
    warp.leave_undefined(operands.d[r], without);
  }
}

const Mma& begin(PtxWarp& warp, const Instruction& i, Mask lanes) {
  require_whole_warp(warp, lanes);
  const Mma& mma = kinds()[i.form->variant];
  warp.count_flops(matrix::kind_of(mma.a), std::uint64_t{2} * mma.m * kColumns * mma.k);
  if (warp.any_undefined()) spread_undefined(warp, i, mma);
  return mma;
}

Sparsity sparsity_of(const PtxWarp& warp, const Mma& mma, const Operands& operands) {
  const Operand* metadata = operands.c + mma.sums();
  return {warp, mma.a, mma.k, mma.sparse == Mma::Sparse::kOrdered, metadata[0], metadata[1]};
}

void mma_float(PtxWarp& warp, const Instruction& i, Mask lanes) {
  const Mma& mma = begin(warp, i, lanes);
  const Operands operands = operands_of(i, mma);
  const bool halves = mma.sum == Mma::Sum::kF16;
  float a[kMostRows * kMostDepth], b[kColumns * kMostDepth], c[kMostRows * kColumns];
  gather_operands(warp, mma, operands, a, b);
  if (halves) gather_halves(warp, mma, operands.c, c);
  else gather_sums(warp, mma, operands.c, c);
  if (mma.sparse != Mma::Sparse::kNo) {
    sparsity_of(warp, mma, operands).multiply_add(a, b, c, kColumns, warp.matrix_order(mma.kept()));
  } else {
    matrix::multiply_add(a, b, c, {mma.m, kColumns, mma.k}, warp.matrix_order(mma.k));
  }
  if (halves) scatter_halves(warp, mma, operands.d, c);
  else scatter_sums(warp, mma, operands.d, c);
}

void mma_double(PtxWarp& warp, const Instruction& i, Mask lanes) {
  const Mma& mma = begin(warp, i, lanes);
  const Operands operands = operands_of(i, mma);
  double a[kMostRows * 16], b[kColumns * 16], c[kMostRows * kColumns];
  gather_operands(warp, mma, operands, a, b);
  gather_sums(warp, mma, operands.c, c);
  {
    const HostRounding rounding(mma.rounding);
    matrix::multiply_add(a, b, c, {mma.m, kColumns, mma.k}, warp.matrix_order(mma.k));
  }
  scatter_sums(warp, mma, operands.d, c);
}

void mma_integer(PtxWarp& warp, const Instruction& i, Mask lanes) {
  const Mma& mma = begin(warp, i, lanes);
  const Operands operands = operands_of(i, mma);
  std::int32_t a[kMostRows * kMostDepth], b[kColumns * kMostDepth], c[kMostRows * kColumns];
  gather_operands(warp, mma, operands, a, b);
  gather_sums(warp, mma, operands.c, c);
  if (mma.sparse != Mma::Sparse::kNo) {
    sparsity_of(warp, mma, operands).multiply_add(a, b, c, kColumns, mma.saturate);
  } else {
    matrix::multiply_add(a, b, c, {mma.m, kColumns, mma.k}, mma.saturate);
  }
  scatter_sums(warp, mma, operands.d, c);
}

void mma_bits(PtxWarp& warp, const Instruction& i, Mask lanes) {
  const Mma& mma = begin(warp, i, lanes);
  const Operands operands = operands_of(i, mma);
  std::uint32_t a[kMostRows * 8], b[kColumns * 8];
  std::int32_t c[kMostRows * kColumns];
  const unsigned words = mma.k / 32;
  gather<std::uint32_t>(warp, operands.a, mma.a_registers(), mma.m, words * 4, a);
  gather<std::uint32_t>(warp, operands.b, mma.b_registers(), kColumns, words * 4, b);
  gather_sums(warp, mma, operands.c, c);
  for (unsigned row = 0; row < mma.m; ++row) {
    for (unsigned column = 0; column < kColumns; ++column) {
      std::uint32_t sum = 0;
      for (unsigned word = 0; word < words; ++word) {
        const std::uint32_t x = a[row * words + word], y = b[column * words + word];
        sum += static_cast<unsigned>(__builtin_popcount(mma.sum == Mma::Sum::kXor ? x ^ y : x & y));
      }
      c[row * kColumns + column] = static_cast<std::int32_t>(static_cast<std::uint32_t>(c[row * kColumns + column]) + sum);
    }
  }
  scatter_sums(warp, mma, operands.d, c);
}

// m8n8k4 of fp16: four products of 8 x 8 x 4, each held by 4 lanes and the 4 lanes 16 further.
struct Quad {
  bool a_columns, b_columns, c_halves, d_halves;
};

void mma_quads(PtxWarp& warp, const Instruction& i, Mask lanes) {
  require_whole_warp(warp, lanes);
  warp.count_flops(matrix::Kind::kF16, 4 * 2 * 8 * 8 * 4);
  const std::uint32_t variant = i.form->variant;
  const Quad quad{(variant & 1) != 0, (variant & 2) != 0, (variant & 4) != 0, (variant & 8) != 0};
  const Operand* d = i.operands.data();
  const Operand* a_at = d + (quad.d_halves ? 4 : 8);
  const Operand* b_at = a_at + 2;
  const Operand* c_at = b_at + 2;
  const auto half_at = [&](const Operand* registers, unsigned index, unsigned lane) {
    return static_cast<std::uint16_t>(warp.row<std::uint32_t>(registers[index / 2])[lane] >> (index % 2 * 16));
  };
  // Where element `index` of a lane's share of C and D stands in the 8 x 8 matrix.
  const auto place = [](bool halves, unsigned upper, unsigned part, unsigned index) {
    if (halves) return (part + upper) * 8 + index;
    return ((part & 1) + (index & 2) + upper) * 8 + (index & 4) + (part & 2) + (index & 1);
  };
  for (unsigned group = 0; group < 4; ++group) {
    std::uint16_t a_codes[8 * 4], b_codes[4 * 8];
    float a[8 * 4], b[4 * 8], c[8 * 8];
    for (unsigned member = 0; member < 8; ++member) {
      const unsigned lane = group * 4 + member % 4 + member / 4 * 16;
      const unsigned part = lane % 4, upper = lane < 16 ? 0 : 4;
      for (unsigned index = 0; index < 4; ++index) {
        const std::uint16_t x = half_at(a_at, index, lane), y = half_at(b_at, index, lane);
        a_codes[quad.a_columns ? (index + upper) * 4 + part : (part + upper) * 4 + index] = x;
        b_codes[quad.b_columns ? index * 8 + part + upper : part * 8 + index + upper] = y;
      }
      for (unsigned index = 0; index < 8; ++index) {
        float& value = c[place(quad.c_halves, upper, part, index)];
        if (quad.c_halves) {
          const std::uint16_t code = half_at(c_at, index, lane);
          matrix::floats_from(Element::kF16, &code, &value, 1);
        } else {
          value = warp.row<float>(c_at[index])[lane];
        }
      }
    }
    matrix::floats_from(Element::kF16, a_codes, a, 32);
    matrix::floats_from(Element::kF16, b_codes, b, 32);
    matrix::multiply_add(a, b, c, {8, 8, 4}, warp.matrix_order(4));
    for (unsigned member = 0; member < 8; ++member) {
      const unsigned lane = group * 4 + member % 4 + member / 4 * 16;
      const unsigned part = lane % 4, upper = lane < 16 ? 0 : 4;
      if (quad.d_halves) {
        for (unsigned r = 0; r < 4; ++r) {
          const float* pair = c + place(true, upper, part, 2 * r);
          warp.out<std::uint32_t>(d[r])[lane] =
              std::uint32_t{matrix::half_from(pair[1])} << 16 | matrix::half_from(pair[0]);
        }
      } else {
        for (unsigned r = 0; r < 8; ++r) warp.out<float>(d[r])[lane] = c[place(false, upper, part, r)];
      }
    }
  }
}

// ---- forms

std::string registers_of(unsigned count, unsigned bytes) {
  return std::to_string(bytes) + "*" + std::to_string(count);
}

void add(Forms& forms, const std::string& opcode, const Mma& mma, Handler handler) {
  const unsigned bytes = mma.register_bits() / 8;
  Form form;
  constexpr const char* kKinds[]{"mma.sync.aligned.", "mma.sp.sync.aligned.", "mma.sp::ordered_metadata.sync.aligned."};
  form.opcode = kKinds[static_cast<unsigned>(mma.sparse)] + opcode;
  form.operands = "=" + registers_of(mma.sums(), bytes) + " " + registers_of(mma.a_registers(), bytes) + " " +
                  registers_of(mma.b_registers(), bytes) + " " + registers_of(mma.sums(), bytes);
  if (mma.sparse != Mma::Sparse::kNo) form.operands += " 4 4";
  form.handler = handler;
  form.variant = static_cast<std::uint32_t>(kinds().size());
  form.undefined = Form::Undefined::kHandled;
  kinds().push_back(mma);
  forms.push_back(std::move(form));
}

std::string shape(unsigned m, unsigned k) {
  return "m" + std::to_string(m) + "n8k" + std::to_string(k) + ".row.col";
}

using Sum = Mma::Sum;
using Named = std::pair<const char*, Element>;

void add_floats(Forms& forms) {
  for (const unsigned k : {8U, 16U}) {
    add(forms, shape(16, k) + ".f16.f16.f16.f16", {16, k, Element::kF16, Element::kF16, Sum::kF16, false}, mma_float);
    add(forms, shape(16, k) + ".f32.f16.f16.f32", {16, k, Element::kF16, Element::kF16, Sum::kF32, false}, mma_float);
    add(forms, shape(16, k) + ".f32.bf16.bf16.f32", {16, k, Element::kBf16, Element::kBf16, Sum::kF32, false},
        mma_float);
  }
  for (const unsigned k : {4U, 8U}) {
    add(forms, shape(16, k) + ".f32.tf32.tf32.f32", {16, k, Element::kTf32, Element::kTf32, Sum::kF32, false},
        mma_float);
  }
  constexpr std::array<Named, 2> kEight{{{"e4m3", Element::kE4m3}, {"e5m2", Element::kE5m2}}};
  for (const auto& [a_name, a] : kEight) {
    for (const auto& [b_name, b] : kEight) {
      for (const unsigned k : {16U, 32U}) {
        const std::string types = std::string(a_name) + "." + b_name;
        add(forms, shape(16, k) + ".f32." + types + ".f32", {16, k, a, b, Sum::kF32, false}, mma_float);
        add(forms, shape(16, k) + ".f16." + types + ".f16", {16, k, a, b, Sum::kF16, false}, mma_float);
      }
    }
  }
  for (const auto& [name, rounding] : kHostRoundings) {
    const std::string tail = std::string(name) + ".f64.f64.f64.f64";
    add(forms, shape(8, 4) + tail, {8, 4, Element::kF64, Element::kF64, Sum::kF64, false, rounding}, mma_double);
    for (const unsigned k : {4U, 8U, 16U}) {
      add(forms, shape(16, k) + tail, {16, k, Element::kF64, Element::kF64, Sum::kF64, false, rounding}, mma_double);
    }
  }
}

void add_integers(Forms& forms, const std::array<Named, 2>& types, unsigned depth) {
  for (const bool saturate : {false, true}) {
    for (const auto& [a_name, a] : types) {
      for (const auto& [b_name, b] : types) {
        const std::string tail = std::string(saturate ? ".satfinite" : "") + ".s32." + a_name + "." + b_name + ".s32";
        add(forms, shape(8, depth) + tail, {8, depth, a, b, Sum::kS32, saturate}, mma_integer);
        add(forms, shape(16, depth) + tail, {16, depth, a, b, Sum::kS32, saturate}, mma_integer);
        add(forms, shape(16, 2 * depth) + tail, {16, 2 * depth, a, b, Sum::kS32, saturate}, mma_integer);
      }
    }
  }
}

Mma sparse(Mma mma, Mma::Sparse how) {
  mma.sparse = how;
  return mma;
}

void add_sparse_floats(Forms& forms, Mma::Sparse how) {
  const auto one = [&](unsigned k, Element a, Element b, Sum sum) { return sparse({16, k, a, b, sum, false}, how); };
  for (const unsigned k : {16U, 32U}) {
    add(forms, shape(16, k) + ".f16.f16.f16.f16", one(k, Element::kF16, Element::kF16, Sum::kF16), mma_float);
    add(forms, shape(16, k) + ".f32.f16.f16.f32", one(k, Element::kF16, Element::kF16, Sum::kF32), mma_float);
    add(forms, shape(16, k) + ".f32.bf16.bf16.f32", one(k, Element::kBf16, Element::kBf16, Sum::kF32), mma_float);
    add(forms, shape(16, k / 2) + ".f32.tf32.tf32.f32", one(k / 2, Element::kTf32, Element::kTf32, Sum::kF32), mma_float);
  }
  constexpr std::array<Named, 2> kEight{{{"e4m3", Element::kE4m3}, {"e5m2", Element::kE5m2}}};
  for (const auto& [a_name, a] : kEight) {
    for (const auto& [b_name, b] : kEight) {
      add(forms, shape(16, 64) + ".f32." + a_name + "." + b_name + ".f32", one(64, a, b, Sum::kF32), mma_float);
    }
  }
}

void add_sparse_integers(Forms& forms, Mma::Sparse how, const std::array<Named, 2>& types, unsigned depth) {
  for (const bool saturate : {false, true}) {
    for (const auto& [a_name, a] : types) {
      for (const auto& [b_name, b] : types) {
        const std::string tail = std::string(saturate ? ".satfinite" : "") + ".s32." + a_name + "." + b_name + ".s32";
        for (const unsigned k : {depth, 2 * depth}) {
          add(forms, shape(16, k) + tail, sparse({16, k, a, b, Sum::kS32, saturate}, how), mma_integer);
        }
      }
    }
  }
}

void add_bits(Forms& forms) {
  for (const auto& [name, sum] : {std::pair{"xor", Sum::kXor}, std::pair{"and", Sum::kAnd}}) {
    const std::string tail = std::string(".s32.b1.b1.s32.") + name + ".popc";
    add(forms, shape(8, 128) + tail, {8, 128, Element::kB1, Element::kB1, sum, false}, mma_bits);
    add(forms, shape(16, 128) + tail, {16, 128, Element::kB1, Element::kB1, sum, false}, mma_bits);
    add(forms, shape(16, 256) + tail, {16, 256, Element::kB1, Element::kB1, sum, false}, mma_bits);
  }
}

void add_quads(Forms& forms) {
  for (std::uint32_t variant = 0; variant < 16; ++variant) {
    const bool c_halves = (variant & 4) != 0, d_halves = (variant & 8) != 0;
    if (d_halves && !c_halves) continue;  // PTX has no such form
    Form form;
    form.opcode = std::string("mma.sync.aligned.m8n8k4.") + ((variant & 1) != 0 ? "col." : "row.") +
                  ((variant & 2) != 0 ? "col" : "row") + (d_halves ? ".f16" : ".f32") + ".f16.f16" +
                  (c_halves ? ".f16" : ".f32");
    form.operands = std::string(d_halves ? "=4*4" : "=4*8") + " 4*2 4*2" + (c_halves ? " 4*4" : " 4*8");
    form.handler = mma_quads;
    form.variant = variant;
    forms.push_back(std::move(form));
  }
}

}  // namespace

void add_mma_forms(Forms& forms) {
  add_floats(forms);
  add_integers(forms, {{{"s8", Element::kS8}, {"u8", Element::kU8}}}, 16);
  add_integers(forms, {{{"s4", Element::kS4}, {"u4", Element::kU4}}}, 32);
  for (const auto how : {Mma::Sparse::kAny, Mma::Sparse::kOrdered}) {
    add_sparse_floats(forms, how);
    add_sparse_integers(forms, how, {{{"s8", Element::kS8}, {"u8", Element::kU8}}}, 32);
    add_sparse_integers(forms, how, {{{"s4", Element::kS4}, {"u4", Element::kU4}}}, 64);
  }
  add_bits(forms);
  add_quads(forms);
}

}  // namespace msa_ops::emulator::ptx

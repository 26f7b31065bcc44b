// wmma: matrices that a warp loads, multiplies and stores as a whole. PTX leaves open which lane holds what; here the
// elements follow each other, row by row, over the lanes of the first register, then those of the next. Where a chip
// holds elements twice they stand here twice too.
#include <array>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "../matrix/formats.hpp"
#include "../matrix/kinds.hpp"
#include "../matrix/product.hpp"
#include "addresses.hpp"
#include "aligned.hpp"
#include "host_rounding.hpp"
#include "lanes.hpp"
#include "opcodes.hpp"

namespace msa_ops::emulator::ptx {
namespace {

using matrix::Element;

constexpr unsigned kMost = 512;  // elements of a matrix of numbers; those of bits are 8 x 128

enum class Part { kA, kB, kC };

// Of accumulators only the bits are moved.
struct Type {
  const char* name;
  unsigned bits;
  Element element;
};
constexpr Type kHalf{"f16", 16, Element::kF16}, kBrain{"bf16", 16, Element::kBf16}, kTf32{"tf32", 32, Element::kTf32},
    kSingle{"f32", 32, Element::kF32}, kDouble{"f64", 64, Element::kF64}, kS8{"s8", 8, Element::kS8},
    kU8{"u8", 8, Element::kU8}, kS4{"s4", 4, Element::kS4}, kU4{"u4", 4, Element::kU4}, kBit{"b1", 1, Element::kB1},
    kWhole{"s32", 32, Element::kF32};

struct Shape {
  unsigned m, n, k;
  std::string text() const {
    return "m" + std::to_string(m) + "n" + std::to_string(n) + "k" + std::to_string(k);
  }
};

// A matrix in registers: rows x columns elements of so many bits.
struct Fragment {
  unsigned rows, columns, bits, registers;
  unsigned register_bits() const { return bits == 64 ? 64 : 32; }
  unsigned elements_a_register() const { return register_bits() / bits; }
  unsigned words() const { return rows * columns * bits / register_bits(); }  // 32 or 64 bits each
  std::string operands() const { return std::to_string(register_bits() / 8) + "*" + std::to_string(registers); }
};

Fragment fragment_of(const Shape& shape, Part part, const Type& type) {
  const unsigned rows = part == Part::kB ? shape.k : shape.m, columns = part == Part::kA ? shape.k : shape.n;
  Fragment made{rows, columns, type.bits, 0};
  const bool doubled = part != Part::kC && type.element == Element::kF16;
  made.registers = doubled ? 8 : made.words() / kLanes;
  return made;
}

// ---- loads and stores

struct Access {
  Fragment fragment;
  bool by_columns;  // a column's elements stand beside each other in memory
};

struct Product {
  Shape shape;
  Type a, c, d;
  bool saturate, exclusive;  // exclusive: of bits, .xor
  int rounding = FE_TONEAREST;  // of fp64
};

std::vector<Access>& accesses() {
  static auto* made = new std::vector<Access>();
  return *made;
}
std::vector<Product>& products() {
  static auto* made = new std::vector<Product>();
  return *made;
}

std::uint64_t same_in_all(PtxWarp& warp, const Operand& operand, const char* what) {
  const std::uint64_t first = warp.value(operand, 0);
  for (unsigned lane = 1; lane < kLanes; ++lane) {
    if (warp.value(operand, lane) != first) {
      throw Violation{FaultKind::kDivergence, std::string(what) + " differs between lanes", static_cast<int>(lane)};
    }
  }
  return first;
}

// Where a matrix stands. CUDA asks for a start at a multiple of 32 bytes, and for lines at multiples of 16 unless they
// follow each other.
struct Place {
  std::uint64_t address, line_bytes;
};
Place place_of(PtxWarp& warp, const Instruction& i, const Access& access, const Operand& base, const Operand& stride) {
  const unsigned line = access.by_columns ? access.fragment.rows : access.fragment.columns;
  const std::uint64_t elements = stride.present ? same_in_all(warp, stride, "the stride of a matrix") : line;
  Place place{same_in_all(warp, base, "the address of a matrix") + i.offset, elements * access.fragment.bits / 8};
  if (place.address % 32 != 0) {
    throw Violation{FaultKind::kMisaligned, "a matrix that does not begin at a multiple of 32 bytes", 0, place.address};
  }
  if (elements != line && elements * access.fragment.bits % 128 != 0) {
    throw Violation{FaultKind::kMisaligned,
                    "a stride of " + std::to_string(elements) + " elements, which is no multiple of 16 bytes", 0,
                    place.address};
  }
  return place;
}

// Calls function(address, place in the packed matrix, lane) for each run of elements that memory holds as it is wanted:
// whole words of a line where lines are rows, single elements otherwise. Elements of less than a byte come in lines
// of whole words.
template <typename Function>
void for_pieces(const Access& access, const Place& place, Function function) {
  const Fragment& f = access.fragment;
  const unsigned bytes = f.bits < 8 ? 4 : f.bits / 8, elements = bytes * 8 / f.bits;
  const unsigned lines = access.by_columns ? f.columns : f.rows, length = access.by_columns ? f.rows : f.columns;
  unsigned piece = 0;
  for (unsigned line = 0; line < lines; ++line) {
    for (unsigned at = 0; at < length; at += elements, ++piece) {
      function(place.address + line * place.line_bytes + at * f.bits / 8, line * length + at, piece % kLanes, bytes);
    }
  }
}

// Memory's order to rows one after the other, or back.
void turn(const Access& access, const unsigned char* from, unsigned char* to, bool loads) {
  const Fragment& f = access.fragment;
  const std::size_t total = std::size_t{f.rows} * f.columns * f.bits / 8;
  if (!access.by_columns || f.bits < 8) {  // B of small elements stays in columns
    std::memcpy(to, from, total);
    return;
  }
  const unsigned bytes = f.bits / 8;
  for (unsigned row = 0; row < f.rows; ++row) {
    for (unsigned column = 0; column < f.columns; ++column) {
      const unsigned by_row = (row * f.columns + column) * bytes, by_column = (column * f.rows + row) * bytes;
      std::memcpy(to + (loads ? by_row : by_column), from + (loads ? by_column : by_row), bytes);
    }
  }
}

constexpr std::size_t kMostBytes = kMost * 8;

void count(PtxWarp& warp, const Instruction& i, std::uint64_t address, std::size_t bytes, bool write) {
  MemorySpace space = i.form->memory;
  if (space == MemorySpace::kGeneric) space = space_of(address);
  if (space != MemorySpace::kGlobal) return warp.count_bytes(PtxWarp::Space::kShared, write, bytes);
  if (write) warp.count_written(bytes);
  else warp.count_read(bytes);
}

template <typename Register>
void to_registers(PtxWarp& warp, const Instruction& i, const Fragment& f, const unsigned char* packed) {
  const unsigned filled = f.words() / kLanes;  // registers that hold the matrix once
  for (unsigned r = 0; r < f.registers; ++r) {
    std::memcpy(warp.out<Register>(i.operands[r]), packed + r % filled * kLanes * sizeof(Register),
                kLanes * sizeof(Register));
  }
}

template <typename Register>
void from_registers(PtxWarp& warp, const Operand* registers, const Fragment& f, unsigned char* packed) {
  for (unsigned r = 0; r < f.words() / kLanes; ++r) {
    std::memcpy(packed + r * kLanes * sizeof(Register), warp.row<Register>(registers[r]), kLanes * sizeof(Register));
  }
}

// {registers}, [address]{, stride}
void load(PtxWarp& warp, const Instruction& i, Mask lanes) {
  require_whole_warp(warp, lanes);
  const Access& one = accesses()[i.form->variant];
  const Fragment& f = one.fragment;
  const Place place = place_of(warp, i, one, i.operands[f.registers], i.operands[f.registers + 1]);
  unsigned char lines[kMostBytes], packed[kMostBytes];
  for_pieces(one, place, [&](std::uint64_t address, unsigned at, unsigned lane, unsigned bytes) {
    std::memcpy(lines + at * f.bits / 8, access<Use::kRead>(warp, i, address, bytes, i.form->memory, lane), bytes);
    count(warp, i, address, bytes, false);
  });
  turn(one, lines, packed, true);
  if (f.register_bits() == 64) to_registers<std::uint64_t>(warp, i, f, packed);
  else to_registers<std::uint32_t>(warp, i, f, packed);
}

// [address], {registers}{, stride}
void store(PtxWarp& warp, const Instruction& i, Mask lanes) {
  require_whole_warp(warp, lanes);
  const Access& one = accesses()[i.form->variant];
  const Fragment& f = one.fragment;
  const Place place = place_of(warp, i, one, i.operands[0], i.operands[1 + f.registers]);
  unsigned char lines[kMostBytes], packed[kMostBytes];
  if (f.register_bits() == 64) from_registers<std::uint64_t>(warp, &i.operands[1], f, packed);
  else from_registers<std::uint32_t>(warp, &i.operands[1], f, packed);
  turn(one, packed, lines, false);
  for_pieces(one, place, [&](std::uint64_t address, unsigned at, unsigned lane, unsigned bytes) {
    std::memcpy(access<Use::kWrite>(warp, i, address, bytes, i.form->memory, lane), lines + at * f.bits / 8, bytes);
    count(warp, i, address, bytes, true);
  });
}

// ---- products: {d}, {a}, {b}, {c}

struct Operands {
  Fragment d, a, b, c;
  const Operand *d_at, *a_at, *b_at, *c_at;
};

Operands operands_of(const Instruction& i, const Product& p) {
  Operands made{fragment_of(p.shape, Part::kC, p.d), fragment_of(p.shape, Part::kA, p.a),
                fragment_of(p.shape, Part::kB, p.a), fragment_of(p.shape, Part::kC, p.c),
                i.operands.data(), nullptr, nullptr, nullptr};
  made.a_at = made.d_at + made.d.registers;
  made.b_at = made.a_at + made.a.registers;
  made.c_at = made.b_at + made.b.registers;
  return made;
}

const Product& begin(PtxWarp& warp, const Instruction& i, Mask lanes) {
  require_whole_warp(warp, lanes);
  const Product& p = products()[i.form->variant];
  warp.count_flops(matrix::kind_of(p.a.element), std::uint64_t{2} * p.shape.m * p.shape.n * p.shape.k);
  return p;
}

void product_float(PtxWarp& warp, const Instruction& i, Mask lanes) {
  const Product& p = begin(warp, i, lanes);
  const Operands o = operands_of(i, p);
  alignas(8) unsigned char packed[kMostBytes];
  float a[kMost], b[kMost], c[kMost];
  from_registers<std::uint32_t>(warp, o.a_at, o.a, packed);
  matrix::floats_from_packed(p.a.element, packed, a, o.a.rows * o.a.columns);
  from_registers<std::uint32_t>(warp, o.b_at, o.b, packed);
  matrix::floats_from_packed(p.a.element, packed, b, o.b.rows * o.b.columns);
  from_registers<std::uint32_t>(warp, o.c_at, o.c, packed);
  const unsigned sums = p.shape.m * p.shape.n;
  if (p.c.bits == 16) matrix::floats_from_packed(Element::kF16, packed, c, sums);
  else std::memcpy(c, packed, sums * sizeof(float));
  matrix::multiply_add(a, b, c, {p.shape.m, p.shape.n, p.shape.k}, warp.matrix_order(p.shape.k));
  if (p.d.bits == 16) {
    std::uint16_t halves[kMost];
    constexpr std::uint16_t kGreatest = 0x7bff;
    for (unsigned at = 0; at < sums; ++at) {
      halves[at] = matrix::half_from(c[at]);
      if (p.saturate && (halves[at] & 0x7fff) == 0x7c00) halves[at] = (halves[at] & 0x8000) | kGreatest;
    }
    std::memcpy(packed, halves, sums * sizeof(std::uint16_t));
  } else {
    for (unsigned at = 0; p.saturate && at < sums; ++at) {
      if (std::isinf(c[at])) c[at] = std::copysign(0x1.fffffep127F, c[at]);
    }
    std::memcpy(packed, c, sums * sizeof(float));
  }
  to_registers<std::uint32_t>(warp, i, o.d, packed);
}

void product_double(PtxWarp& warp, const Instruction& i, Mask lanes) {
  const Product& p = begin(warp, i, lanes);
  const Operands o = operands_of(i, p);
  double a[8 * 4], b[4 * 8], c[8 * 8];
  from_registers<std::uint64_t>(warp, o.a_at, o.a, reinterpret_cast<unsigned char*>(a));
  from_registers<std::uint64_t>(warp, o.b_at, o.b, reinterpret_cast<unsigned char*>(b));
  from_registers<std::uint64_t>(warp, o.c_at, o.c, reinterpret_cast<unsigned char*>(c));
  {
    const HostRounding rounding(p.rounding);
    matrix::multiply_add(a, b, c, {p.shape.m, p.shape.n, p.shape.k}, warp.matrix_order(p.shape.k));
  }
  to_registers<std::uint64_t>(warp, i, o.d, reinterpret_cast<const unsigned char*>(c));
}

void product_integer(PtxWarp& warp, const Instruction& i, Mask lanes) {
  const Product& p = begin(warp, i, lanes);
  const Operands o = operands_of(i, p);
  alignas(8) unsigned char packed[kMostBytes];
  std::int32_t a[kMost], b[kMost], c[kMost];
  from_registers<std::uint32_t>(warp, o.a_at, o.a, packed);
  matrix::integers_from_packed(p.a.element, packed, a, o.a.rows * o.a.columns);
  from_registers<std::uint32_t>(warp, o.b_at, o.b, packed);
  matrix::integers_from_packed(p.a.element, packed, b, o.b.rows * o.b.columns);
  if (p.a.bits < 8) {  // B stands in columns
    std::int32_t columns[kMost];
    std::memcpy(columns, b, sizeof(columns));
    matrix::transpose(columns, p.shape.n, p.shape.k, b);
  }
  from_registers<std::uint32_t>(warp, o.c_at, o.c, reinterpret_cast<unsigned char*>(c));
  matrix::multiply_add(a, b, c, {p.shape.m, p.shape.n, p.shape.k}, p.saturate);
  to_registers<std::uint32_t>(warp, i, o.d, reinterpret_cast<const unsigned char*>(c));
}

void product_bits(PtxWarp& warp, const Instruction& i, Mask lanes) {
  const Product& p = begin(warp, i, lanes);
  const Operands o = operands_of(i, p);
  std::uint32_t a[kLanes], b[kLanes], c[8 * 8];
  from_registers<std::uint32_t>(warp, o.a_at, o.a, reinterpret_cast<unsigned char*>(a));
  from_registers<std::uint32_t>(warp, o.b_at, o.b, reinterpret_cast<unsigned char*>(b));
  from_registers<std::uint32_t>(warp, o.c_at, o.c, reinterpret_cast<unsigned char*>(c));
  for (unsigned sum = 0; sum < 64; ++sum) {
    for (unsigned word = 0; word < 4; ++word) {
      const std::uint32_t x = a[sum / 8 * 4 + word], y = b[sum % 8 * 4 + word];
      c[sum] += static_cast<unsigned>(__builtin_popcount(p.exclusive ? x ^ y : x & y));
    }
  }
  to_registers<std::uint32_t>(warp, i, o.d, reinterpret_cast<const unsigned char*>(c));
}

// ---- forms

void add_access(Forms& forms, const Shape& shape, Part part, const Type& type, bool by_columns, bool stores) {
  const Access one{fragment_of(shape, part, type), by_columns};
  const std::string what = stores ? "wmma.store.d" : std::string("wmma.load.") + "abc"[static_cast<unsigned>(part)];
  const std::string head = what + ".sync.aligned." + (by_columns ? "col." : "row.") + shape.text();
  for (const auto& [space, memory] : {std::pair<const char*, MemorySpace>{".", MemorySpace::kGeneric},
                                      {".global.", MemorySpace::kGlobal}, {".shared.", MemorySpace::kShared}}) {
    forms.push_back({head + space + type.name, stores ? "A " + one.fragment.operands() + " 4?" : "=" + one.fragment.operands() + " A 4?",
                     stores ? store : load, memory});
    forms.back().variant = static_cast<std::uint32_t>(accesses().size());
  }
  accesses().push_back(one);
}

void add_accumulators(Forms& forms, const Shape& shape, const Type& type) {
  for (const bool by_columns : {false, true}) {
    add_access(forms, shape, Part::kC, type, by_columns, false);
    add_access(forms, shape, Part::kC, type, by_columns, true);
  }
}

void add_product(Forms& forms, const std::string& opcode, const Product& p, Handler handler) {
  const auto operands = [&](Part part, const Type& type) { return fragment_of(p.shape, part, type).operands(); };
  forms.push_back({opcode, "=" + operands(Part::kC, p.d) + " " + operands(Part::kA, p.a) + " " + operands(Part::kB, p.a) +
                               " " + operands(Part::kC, p.c), handler});
  forms.back().variant = static_cast<std::uint32_t>(products().size());
  products().push_back(p);
}

constexpr std::array<const char*, 4> kLayouts{"row.row.", "row.col.", "col.row.", "col.col."};

void add_inputs(Forms& forms, const Shape& shape, const Type& type) {
  for (const bool by_columns : {false, true}) {
    // Elements of less than a byte have one layout.
    if (type.bits >= 8 || !by_columns) add_access(forms, shape, Part::kA, type, by_columns, false);
    if (type.bits >= 8 || by_columns) add_access(forms, shape, Part::kB, type, by_columns, false);
  }
}

void add_shape_of_16(Forms& forms, const Shape& shape) {
  for (const Type& type : {kHalf, kBrain, kS8, kU8}) add_inputs(forms, shape, type);
  for (const Type& type : {kHalf, kSingle, kWhole}) add_accumulators(forms, shape, type);
  for (const std::string layouts : kLayouts) {
    const std::string head = "wmma.mma.sync.aligned." + layouts + shape.text() + ".";
    for (const bool saturate : {false, true}) {
      const std::string sat = saturate ? ".satfinite" : "";
      for (const Type& d : {kHalf, kSingle}) {
        for (const Type& c : {kHalf, kSingle}) {
          add_product(forms, head + d.name + "." + c.name + sat, {shape, kHalf, c, d, saturate, false}, product_float);
        }
      }
      for (const Type& a : {kS8, kU8}) {
        add_product(forms, head + "s32." + a.name + "." + a.name + ".s32" + sat,
                    {shape, a, kWhole, kWhole, saturate, false}, product_integer);
      }
    }
    add_product(forms, head + "f32.bf16.bf16.f32", {shape, kBrain, kSingle, kSingle, false, false}, product_float);
  }
}

}  // namespace

void add_wmma_forms(Forms& forms) {
  for (const Shape& shape : {Shape{16, 16, 16}, Shape{8, 32, 16}, Shape{32, 8, 16}}) add_shape_of_16(forms, shape);
  const Shape tf32{16, 16, 8}, doubles{8, 8, 4}, nibbles{8, 8, 32}, bits{8, 8, 128};
  add_inputs(forms, tf32, kTf32);
  add_accumulators(forms, tf32, kSingle);
  add_inputs(forms, doubles, kDouble);
  add_accumulators(forms, doubles, kDouble);
  for (const std::string layouts : kLayouts) {
    const std::string head = "wmma.mma.sync.aligned." + layouts;
    add_product(forms, head + tf32.text() + ".f32.tf32.tf32.f32", {tf32, kTf32, kSingle, kSingle, false, false},
                product_float);
    for (const auto& [name, rounding] : kHostRoundings) {
      add_product(forms, head + doubles.text() + name + ".f64.f64.f64.f64",
                  {doubles, kDouble, kDouble, kDouble, false, false, rounding}, product_double);
    }
  }
  for (const Type& type : {kS4, kU4}) {
    add_inputs(forms, nibbles, type);
    for (const bool saturate : {false, true}) {
      add_product(forms, "wmma.mma.sync.aligned.row.col.m8n8k32.s32." + std::string(type.name) + "." + type.name + ".s32" +
                             (saturate ? ".satfinite" : ""),
                  {nibbles, type, kWhole, kWhole, saturate, false}, product_integer);
    }
  }
  add_accumulators(forms, nibbles, kWhole);
  add_inputs(forms, bits, kBit);
  add_accumulators(forms, bits, kWhole);
  for (const bool exclusive : {false, true}) {
    add_product(forms, std::string("wmma.mma.") + (exclusive ? "xor" : "and") +
                           ".popc.sync.aligned.row.col.m8n8k128.s32.b1.b1.s32",
                {bits, kBit, kWhole, kWhole, false, exclusive}, product_bits);
  }
}

}  // namespace msa_ops::emulator::ptx

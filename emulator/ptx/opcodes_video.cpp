// Video instructions: arithmetic on a whole register, a half or a byte of it, or on all its halves or bytes at once.
// No chip since sm_50 has the scalar ones: ptxas expands them to 64-bit arithmetic, and not to what the PTX manual says.
// Here they give what an H200 gave (tests/emulator/silicon), which differs from the manual in this:
//  * .sat to .u32 makes 0 of what is negative, but of what is too large its lower 32 bits (but vshl and vmad).
//  * .sat into a part of a register makes the part's greatest number of all that does not fit, negative numbers too.
//    Shifts saturate to 32 bits there, and have 34 bits before.
//  * .h1 as a destination is the upper half of the result.
//  * .min and .max compare 64 bits, as unsigned ones where d is .u32; sums and differences have been cut to 32 before and
//    their sign repeated.
//  * vmad multiplies as if both were signed.
#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "lanes.hpp"
#include "opcodes.hpp"
#include "selector.hpp"

namespace msa_ops::emulator::ptx {
namespace {

using std::int32_t, std::int64_t, std::uint32_t;

enum class Operation { kAdd, kSub, kAbsDiff, kMin, kMax, kAverage, kShiftLeft, kShiftRight, kSet };
enum class Compare { kEq, kNe, kLt, kLe, kGt, kGe };

struct Video {
  Operation operation = Operation::kAdd;
  bool d_signed = false, a_signed = false, b_signed = false;
  bool saturate = false;
  bool adds = false;  // the third operand
  enum class Join { kNone, kAdd, kMin, kMax, kInsert } join = Join::kNone;  // scalar ones: with the third operand
  Compare compare = Compare::kEq;
  bool wrap = false;    // shifts
  unsigned parts = 1;   // that are computed at once: 1, 2 or 4
  bool more = false;    // vmad: .po
  unsigned scale = 0;   // vmad: bits to the right
};

std::vector<Video>& videos() {
  static auto* made = new std::vector<Video>();
  return *made;
}

int64_t field(uint32_t value, unsigned bits, unsigned index, bool is_signed) {
  const uint32_t up = value << (32 - bits - bits * index);
  return is_signed ? int64_t{static_cast<int32_t>(up) >> (32 - bits)} : int64_t{up >> (32 - bits)};
}

// A source with its selector: .b0 to .b3, .h0, .h1, or nothing.
int64_t part(uint32_t value, const Selector& selector, bool is_signed) {
  return field(value, selector.count == 0 ? 32 : selector.bits, selector.count == 0 ? 0 : selector.index(0), is_signed);
}

int64_t clamp_to(int64_t value, unsigned bits, bool is_signed) {
  const int64_t greatest = (int64_t{1} << (is_signed ? bits - 1 : bits)) - 1;
  return std::clamp(value, is_signed ? -greatest - 1 : 0, greatest);
}

bool holds(Compare compare, int64_t a, int64_t b) {
  switch (compare) {
    case Compare::kEq: return a == b;
    case Compare::kNe: return a != b;
    case Compare::kLt: return a < b;
    case Compare::kLe: return a <= b;
    case Compare::kGt: return a > b;
    case Compare::kGe: return a >= b;
  }
  return false;
}

int64_t computed(const Video& v, int64_t a, int64_t b) {
  switch (v.operation) {
    case Operation::kAdd: return a + b;
    case Operation::kSub: return a - b;
    case Operation::kAbsDiff: return std::abs(a - b);
    case Operation::kMin: return std::min(a, b);
    case Operation::kMax: return std::max(a, b);
    case Operation::kAverage: return a + b >= 0 ? (a + b + 1) >> 1 : (a + b) >> 1;
    case Operation::kSet: return holds(v.compare, a, b) ? 1 : 0;
    case Operation::kShiftLeft:
    case Operation::kShiftRight: {
      const auto count = static_cast<unsigned>(v.wrap ? b & 31 : std::min<int64_t>(b, 32));
      return v.operation == Operation::kShiftRight ? a >> count : static_cast<int64_t>(static_cast<std::uint64_t>(a) << count);
    }
  }
  return 0;
}

int64_t sign_of_32(int64_t value) { return static_cast<int32_t>(value); }

bool is_shift(const Video& v) { return v.operation == Operation::kShiftLeft || v.operation == Operation::kShiftRight; }
bool is_sum(const Video& v) { return v.operation == Operation::kAdd || v.operation == Operation::kSub; }

// To 32 bits, all that is too large too.
int64_t clamp_to_32(int64_t value, bool is_signed) {
  if (!is_signed && value > 0xffffffff) return 0xffffffff;
  return clamp_to(value, 32, is_signed);
}

// What .sat makes of a result; bits: of the destination.
int64_t saturated(const Video& v, int64_t value, unsigned bits) {
  if (is_shift(v)) {
    const auto cut = static_cast<int64_t>(static_cast<std::uint64_t>(value) << 30) >> 30;
    return sign_of_32(clamp_to_32(cut, v.d_signed));
  }
  if (bits < 32) {
    const int64_t greatest = (int64_t{1} << (v.d_signed ? bits - 1 : bits)) - 1;
    return value < 0 || value > greatest ? greatest : value;
  }
  if (v.d_signed) return clamp_to(value, 32, true);
  const int64_t positive = std::max<int64_t>(value, 0);
  return is_sum(v) ? sign_of_32(positive) : positive;
}

uint32_t inserted(const Selector& to, int64_t value, uint32_t c) {
  const auto low = static_cast<uint32_t>(value);
  if (to.bits == 16) return to.index(0) == 0 ? (c & 0xffff0000) | (low & 0xffff) : (c & 0xffff) | (low & 0xffff0000);
  const unsigned shift = 8 * to.index(0);
  return (c & ~(0xffU << shift)) | (low & 0xff) << shift;
}

uint32_t joined(const Video& v, int64_t value, uint32_t c, const Selector& to) {
  const auto low = static_cast<uint32_t>(value);
  const bool least = v.join == Video::Join::kMin;
  switch (v.join) {
    case Video::Join::kNone: return low;
    case Video::Join::kAdd: return low + c;
    case Video::Join::kInsert: return inserted(to, value, c);
    case Video::Join::kMin:
    case Video::Join::kMax: break;
  }
  if (is_sum(v)) value = sign_of_32(value);
  if (v.d_signed) return (least ? value < sign_of_32(c) : value > sign_of_32(c)) ? low : c;
  const auto wide = static_cast<std::uint64_t>(value);
  return (least ? wide < c : wide > c) ? low : c;
}

// d{.part}, a{.part}, b{.part}{, c}
void scalar(PtxWarp& warp, const Instruction& i, Mask lanes) {
  const Video& v = videos()[i.form->variant];
  const Selector to(i.operands[0]), from_a(i.operands[1]), from_b(i.operands[2]);
  auto* out = warp.out<uint32_t>(i.operands[0]);
  const auto* a = warp.row<uint32_t>(i.operands[1]);
  const auto* b = warp.row<uint32_t>(i.operands[2]);
  const uint32_t* c = v.join != Video::Join::kNone ? warp.row<uint32_t>(i.operands[3]) : nullptr;
  const unsigned bits = to.count == 0 ? 32 : to.bits;
  for_lanes(lanes, [&](unsigned lane) {
    int64_t value = computed(v, part(a[lane], from_a, v.a_signed), part(b[lane], from_b, v.b_signed));
    if (v.saturate) value = saturated(v, value, bits);
    out[lane] = joined(v, value, c != nullptr ? c[lane] : 0, to);
  });
}

// d{.mask}, a{.parts}, b{.parts}, c: parts 0 and 1 of halves are those of a, 2 and 3 those of b; bytes likewise.
void several(PtxWarp& warp, const Instruction& i, Mask lanes) {
  const Video& v = videos()[i.form->variant];
  const unsigned bits = 32 / v.parts;
  const Selector to(i.operands[0]), from_a(i.operands[1]), from_b(i.operands[2]);
  auto* out = warp.out<uint32_t>(i.operands[0]);
  const auto* a = warp.row<uint32_t>(i.operands[1]);
  const auto* b = warp.row<uint32_t>(i.operands[2]);
  const auto* c = warp.row<uint32_t>(i.operands[3]);
  unsigned mask = to.count == 0 ? (1U << v.parts) - 1 : 0;
  for (unsigned at = 0; at < to.count; ++at) mask |= 1U << to.index(at);
  for_lanes(lanes, [&](unsigned lane) {
    const uint32_t both[2] = {a[lane], b[lane]};
    const auto chosen = [&](const Selector& selector, unsigned at, unsigned first, bool is_signed) {
      const unsigned index = selector.count == 0 ? first + at : selector.index(at);
      return field(both[index / v.parts], bits, index % v.parts, is_signed);
    };
    uint32_t result = v.adds ? c[lane] : 0;
    for (unsigned at = 0; at < v.parts; ++at) {
      int64_t value = computed(v, chosen(from_a, at, 0, v.a_signed), chosen(from_b, at, v.parts, v.b_signed));
      if (v.saturate) value = clamp_to(value, bits, v.d_signed);
      const bool wanted = (mask >> at & 1) != 0;
      if (v.adds) {
        if (wanted) result += static_cast<uint32_t>(value);
      } else {
        const uint32_t kept = wanted ? static_cast<uint32_t>(value) : c[lane] >> (bits * at);
        result |= (kept & ((uint32_t{1} << bits) - 1)) << (bits * at);
      }
    }
    out[lane] = result;
  });
}

// d, {-}a{.part}, {-}b{.part}, {-}c; with .po one more
void multiply_add(PtxWarp& warp, const Instruction& i, Mask lanes) {
  const Video& v = videos()[i.form->variant];
  const Selector from_a(i.operands[1]), from_b(i.operands[2]), from_c(i.operands[3]);
  auto* out = warp.out<uint32_t>(i.operands[0]);
  const auto* a = warp.row<uint32_t>(i.operands[1]);
  const auto* b = warp.row<uint32_t>(i.operands[2]);
  const auto* c = warp.row<uint32_t>(i.operands[3]);
  const bool is_signed = v.a_signed || v.b_signed || from_a.negative || from_b.negative || from_c.negative;
  for_lanes(lanes, [&](unsigned lane) {
    const int64_t product = sign_of_32(part(a[lane], from_a, v.a_signed)) * sign_of_32(part(b[lane], from_b, v.b_signed));
    int64_t sum = from_a.negative != from_b.negative ? -product : product;
    sum += from_c.negative ? sign_of_32(~c[lane]) + 1 : sign_of_32(c[lane]);
    sum += v.more ? 1 : 0;
    sum = is_signed ? sum >> v.scale : static_cast<int64_t>(static_cast<std::uint64_t>(sum) >> v.scale);
    out[lane] = static_cast<uint32_t>(v.saturate ? clamp_to_32(sum, is_signed) : sum);
  });
}

struct Name {
  const char* name;
  Operation operation;
};
constexpr Name kScalar[] = {{"vadd", Operation::kAdd}, {"vsub", Operation::kSub}, {"vabsdiff", Operation::kAbsDiff},
                            {"vmin", Operation::kMin}, {"vmax", Operation::kMax}};
constexpr Name kShifts[] = {{"vshl", Operation::kShiftLeft}, {"vshr", Operation::kShiftRight}};
constexpr Name kSeveral[] = {{"vadd", Operation::kAdd},  {"vsub", Operation::kSub}, {"vavrg", Operation::kAverage},
                             {"vabsdiff", Operation::kAbsDiff}, {"vmin", Operation::kMin}, {"vmax", Operation::kMax}};
constexpr const char* kCompares[] = {"eq", "ne", "lt", "le", "gt", "ge"};
constexpr const char* kTypes[] = {".u32", ".s32"};

void add(Forms& forms, const std::string& opcode, const char* operands, Handler handler, const Video& video) {
  forms.push_back({opcode, operands, handler});
  forms.back().variant = static_cast<uint32_t>(videos().size());
  videos().push_back(video);
}

const char* operands_of(unsigned parts) { return parts == 2 ? "=s2 s2 s2 4" : "=s4 s4 s4 4"; }

void add_scalar(Forms& forms, const std::string& opcode, Video video) {
  using Join = Video::Join;
  constexpr std::pair<const char*, Join> kJoins[] = {
      {".add", Join::kAdd}, {".min", Join::kMin}, {".max", Join::kMax}, {" part", Join::kInsert}};
  add(forms, opcode, "=4 s1 s1", scalar, video);
  for (const auto& [name, join] : kJoins) {
    video.join = join;
    add(forms, opcode + name, join == Join::kInsert ? "=s1 s1 s1 4" : "=4 s1 s1 4", scalar, video);
  }
}

}  // namespace

void add_video_forms(Forms& forms) {
  for (unsigned signs = 0; signs < 8; ++signs) {
    Video video;
    video.d_signed = (signs & 4) != 0;
    video.a_signed = (signs & 2) != 0;
    video.b_signed = (signs & 1) != 0;
    const std::string sources = std::string(kTypes[video.a_signed]) + kTypes[video.b_signed];
    const std::string types = kTypes[video.d_signed] + sources;
    for (const bool saturate : {false, true}) {
      video.saturate = saturate;
      const std::string sat = saturate ? ".sat" : "";
      for (const Name& name : kScalar) {
        video.operation = name.operation;
        add_scalar(forms, name.name + types + sat, video);
      }
      for (const Name& name : kShifts) {
        video.operation = name.operation;
        for (const bool wrap : {false, true}) {
          video.wrap = wrap;
          if (video.b_signed) continue;
          add_scalar(forms, name.name + types + sat + (wrap ? ".wrap" : ".clamp"), video);
        }
      }
      for (const unsigned parts : {2U, 4U}) {
        Video vector = video;
        vector.parts = parts;
        for (const Name& name : kSeveral) {
          vector.operation = name.operation;
          add(forms, name.name + std::to_string(parts) + types + sat, operands_of(parts), several, vector);
        }
      }
      for (const bool more : {false, true}) {
        Video product = video;
        product.more = more;
        for (const unsigned scale : {0U, 7U, 15U}) {
          product.scale = scale;
          const std::string scaled = scale == 0 ? "" : ".shr" + std::to_string(scale);
          add(forms, "vmad" + types + (more ? ".po" : "") + sat + scaled, more ? "=4 s1 s1 s1" : "=4 n1 n1 n1",
              multiply_add, product);
        }
      }
    }
    video.saturate = false;
    for (const unsigned parts : {2U, 4U}) {
      video.parts = parts;
      video.adds = true;
      for (const Name& name : kSeveral) {
        video.operation = name.operation;
        add(forms, name.name + std::to_string(parts) + types + ".add", operands_of(parts), several, video);
      }
    }
    if (video.d_signed) continue;  // vset has no type of its own; it is a's
    video.operation = Operation::kSet;
    for (unsigned compare = 0; compare < 6; ++compare) {
      video.compare = static_cast<Compare>(compare);
      const std::string tail = std::string(".") + kCompares[compare];
      Video one = video;
      one.parts = 1;
      one.adds = false;
      one.d_signed = video.a_signed;
      add_scalar(forms, "vset" + sources + tail, one);
      for (const unsigned parts : {2U, 4U}) {
        video.parts = parts;
        for (const bool adds : {false, true}) {
          video.adds = adds;
          const std::string more = adds ? ".add" : "";
          add(forms, "vset" + std::to_string(parts) + sources + tail + more, operands_of(parts), several, video);
        }
      }
    }
  }
}

}  // namespace msa_ops::emulator::ptx

// Video instructions: arithmetic on a whole register, a half or a byte of it, or on all its halves or bytes at once.
// ptxas expands them, and not always to what the PTX manual says: what is left out here (scalar ones that saturate, put
// their result into a part of a register, or join it with another number by .min or .max; scaled products) gave other
// results on an H200.
#include <algorithm>
#include <cstdlib>
#include <string>
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
  Compare compare = Compare::kEq;
  bool wrap = false;    // shifts
  unsigned parts = 1;   // that are computed at once: 1, 2 or 4
  bool more = false;    // vmad: .po
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

// d, a{.part}, b{.part}{, c}
void scalar(PtxWarp& warp, const Instruction& i, Mask lanes) {
  const Video& v = videos()[i.form->variant];
  const Selector from_a(i.operands[1]), from_b(i.operands[2]);
  auto* out = warp.out<uint32_t>(i.operands[0]);
  const auto* a = warp.row<uint32_t>(i.operands[1]);
  const auto* b = warp.row<uint32_t>(i.operands[2]);
  const uint32_t* c = v.adds ? warp.row<uint32_t>(i.operands[3]) : nullptr;
  for_lanes(lanes, [&](unsigned lane) {
    int64_t value = computed(v, part(a[lane], from_a, v.a_signed), part(b[lane], from_b, v.b_signed));
    if (v.saturate) value = clamp_to(value, 32, v.d_signed);
    out[lane] = static_cast<uint32_t>(value) + (c != nullptr ? c[lane] : 0);
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
  for_lanes(lanes, [&](unsigned lane) {
    const auto product = static_cast<uint32_t>(part(a[lane], from_a, v.a_signed)) *
                         static_cast<uint32_t>(part(b[lane], from_b, v.b_signed));
    const uint32_t sum = (from_a.negative != from_b.negative ? -product : product) +
                         (from_c.negative ? -c[lane] : c[lane]);
    out[lane] = sum + (v.more ? 1 : 0);
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
  for (const bool adds : {false, true}) {
    video.adds = adds;
    add(forms, opcode + (adds ? ".add" : ""), adds ? "=4 s1 s1 4" : "=4 s1 s1", scalar, video);
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
        const bool extreme = name.operation == Operation::kMin || name.operation == Operation::kMax;
        if (!saturate || extreme) add_scalar(forms, name.name + types + sat, video);
      }
      for (const Name& name : kShifts) {
        video.operation = name.operation;
        for (const bool wrap : {false, true}) {
          video.wrap = wrap;
          const bool left = name.operation == Operation::kShiftLeft;
          if (video.b_signed || (saturate && left)) continue;
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
        if (!saturate) add(forms, "vmad" + types + (more ? ".po" : ""), "=4 n1 n1 n1", multiply_add, product);
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
    if (video.d_signed) continue;  // vset has no type of its own
    video.operation = Operation::kSet;
    for (unsigned compare = 0; compare < 6; ++compare) {
      video.compare = static_cast<Compare>(compare);
      const std::string tail = std::string(".") + kCompares[compare];
      video.parts = 1;
      add_scalar(forms, "vset" + sources + tail, video);
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

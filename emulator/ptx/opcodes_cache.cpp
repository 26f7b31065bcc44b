// What kernels tell the caches. Caches have no part here, so these only have to be right: addresses that exist, and
// lines that nobody reads after they were thrown away.
#include <cstring>
#include <string>

#include "addresses.hpp"
#include "lanes.hpp"
#include "opcodes.hpp"

namespace msa_ops::emulator::ptx {
namespace {

constexpr std::uint64_t kLine = 128;  // bytes; PTX takes no other number
constexpr int kDiscarded = 0xff;      // PTX leaves the contents open: in floating-point formats these bytes are NaN

void nothing(PtxWarp&, const Instruction&, Mask) {}

// Policies say nothing that an access without one would not do.
void policy(PtxWarp& warp, const Instruction& i, Mask lanes) {
  for_lanes(lanes, [&](unsigned lane) { warp.set_value(i.operands[0], lane, 0); });
}

// The bytes of a line of global memory, [address], 128.
std::byte* line_of(PtxWarp& warp, const Instruction& i, unsigned lane, bool write) {
  const int who = static_cast<int>(lane);
  std::uint64_t address = address_of(warp, i.operands[0], lane, i.offset, i.form->memory);
  if (i.form->memory == MemorySpace::kGeneric && space_of(address) != MemorySpace::kGlobal) {
    throw Violation{FaultKind::kOutOfBounds, "not an address of global memory", who, address};
  }
  if (const std::uint64_t bytes = warp.value(i.operands[1], lane); bytes != kLine) {
    throw Violation{FaultKind::kOutOfBounds, std::to_string(bytes) + " bytes; accepted: 128", who, address};
  }
  std::byte* const line = warp.block().global().range(address, kLine, kLine, write, who);
  if (write) warp.block().cluster().watch().use(address, kLine, true, {}, who);
  return line;
}

void apply_priority(PtxWarp& warp, const Instruction& i, Mask lanes) {
  for_lanes(lanes, [&](unsigned lane) { line_of(warp, i, lane, false); });
}

void discard(PtxWarp& warp, const Instruction& i, Mask lanes) {
  for_lanes(lanes, [&](unsigned lane) { std::memset(line_of(warp, i, lane, true), kDiscarded, kLine); });
}

}  // namespace

void add_cache_forms(Forms& forms) {
  for (const std::string what : {"prefetch.global.L1", "prefetch.global.L2", "prefetch.L1", "prefetch.L2",
                                 "prefetchu.L1", "prefetch.global", "prefetch.tensormap",
                                 "prefetch.param.tensormap", "prefetch.const.tensormap"}) {
    forms.push_back({what, "A", nothing, MemorySpace::kGeneric});
  }
  for (const std::string level : {"L1", "L2"}) {
    forms.push_back({"prefetch.local." + level, "A", nothing, MemorySpace::kLocal});
  }
  for (const auto& [space, memory] : {std::pair<std::string, MemorySpace>{"", MemorySpace::kGeneric},
                                      {".global", MemorySpace::kGlobal}}) {
    forms.push_back({"applypriority" + space + ".L2::evict_normal", "A 4", apply_priority, memory});
    forms.push_back({"discard" + space + ".L2", "A 4", discard, memory});
    for (const std::string first : {"evict_last", "evict_normal", "evict_first", "evict_unchanged"}) {
      for (const std::string second : {"", ".L2::evict_first", ".L2::evict_unchanged"}) {
        forms.push_back({"createpolicy.range" + space + ".L2::" + first + second + ".b64", "=8 A 4 4", policy, memory});
      }
    }
  }
  for (const std::string first : {"evict_last", "evict_normal", "evict_first", "evict_unchanged"}) {
    for (const std::string second : {"", ".L2::evict_first", ".L2::evict_unchanged"}) {
      forms.push_back({"createpolicy.fractional.L2::" + first + second + ".b64", "=8 4?", policy});
    }
  }
  forms.push_back({"createpolicy.cvt.L2.b64", "=8 8", policy});
}

}  // namespace msa_ops::emulator::ptx

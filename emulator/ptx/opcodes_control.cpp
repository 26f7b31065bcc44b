// Branches, the end of a kernel, and barriers of the thread block.
#include <string>

#include "lanes.hpp"
#include "opcodes.hpp"

namespace msa_ops::emulator::ptx {
namespace {

void bra(PtxWarp& warp, const Instruction& i, Mask lanes) { warp.branch(i, lanes); }

void ret(PtxWarp& warp, const Instruction&, Mask lanes) { warp.leave(lanes); }

std::uint32_t uniform(PtxWarp& warp, const Operand& operand, Mask lanes, const char* what) {
  const auto* values = warp.row<std::uint32_t>(operand);
  const std::uint32_t first = values[__builtin_ctz(lanes)];
  for_lanes(lanes, [&](unsigned lane) {
    if (values[lane] != first) {
      throw Violation{FaultKind::kBarrier, std::string(what) + " differs between lanes", static_cast<int>(lane)};
    }
  });
  return first;
}

template <bool waits>
void barrier(PtxWarp& warp, const Instruction& i, Mask lanes) {
  if (const Mask missing = warp.live() & ~lanes; missing != 0) {
    throw Violation{FaultKind::kDivergence, "the lane is not at the barrier that others of its warp have reached",
                    __builtin_ctz(missing)};
  }
  const std::uint32_t number = uniform(warp, i.operands[0], lanes, "the barrier");
  std::uint32_t warps = 0;
  if (i.operands[1].present) {
    const std::uint32_t threads = uniform(warp, i.operands[1], lanes, "the number of threads");
    if (threads == 0 || threads % kLanes != 0) {
      throw Violation{FaultKind::kBarrier,
                      std::to_string(threads) + " threads at a barrier; accepted: multiples of 32"};
    }
    warps = threads / kLanes;
  }
  warp.block().cluster().note_event();
  warp.block().barriers().arrive(number, warp.index(), warps, waits);
  if (waits) warp.wait();
}

}  // namespace

void add_control_forms(Forms& forms) {
  for (const std::string opcode : {"bra", "bra.uni"}) {
    forms.push_back({opcode, "L", bra, MemorySpace::kNone, 0, 1, Form::Control::kBranch});
  }
  for (const std::string opcode : {"ret", "exit"}) {
    forms.push_back({opcode, "", ret, MemorySpace::kNone, 0, 1, Form::Control::kReturn});
  }
  for (const std::string opcode : {"bar.sync", "barrier.sync.aligned", "barrier.cta.sync.aligned"}) {
    forms.push_back({opcode, "4 4?", barrier<true>});
  }
  for (const std::string opcode : {"bar.arrive", "barrier.arrive.aligned", "barrier.cta.arrive.aligned"}) {
    forms.push_back({opcode, "4 4", barrier<false>});
  }
}

}  // namespace msa_ops::emulator::ptx

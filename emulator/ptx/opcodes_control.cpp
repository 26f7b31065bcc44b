// Branches, the end of a kernel, and barriers of the thread block.
#include <string>

#include "lanes.hpp"
#include "opcodes.hpp"

namespace msa_ops::emulator::ptx {
namespace {

void bra(PtxWarp& warp, const Instruction& i, Mask lanes) { warp.branch(i, lanes); }

void brx(PtxWarp& warp, const Instruction& i, Mask lanes) { warp.branch_by_index(i, lanes); }

void ret(PtxWarp& warp, const Instruction&, Mask lanes) { warp.return_from(lanes); }

void exit(PtxWarp& warp, const Instruction&, Mask lanes) { warp.leave(lanes); }

void call(PtxWarp& warp, const Instruction& i, Mask lanes) { warp.call(i, lanes); }

void trap(PtxWarp&, const Instruction&, Mask lanes) {
  throw Violation{FaultKind::kTrap, "the kernel has executed `trap`", __builtin_ctz(lanes)};
}
void breakpoint(PtxWarp&, const Instruction&, Mask lanes) {
  throw Violation{FaultKind::kTrap, "the kernel stops at `brkpt`, and there is no debugger", __builtin_ctz(lanes)};
}

// A sign to a profiler, of which there is none.
void event(PtxWarp&, const Instruction&, Mask) {}

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

struct BarrierUse {
  std::uint32_t number, warps;
};

// The barrier and its number of warps, from operands that all lanes of the warp must have reached together.
BarrierUse barrier_of(PtxWarp& warp, const Operand& barrier, const Operand& threads, Mask lanes) {
  if (const Mask missing = warp.live() & ~lanes; missing != 0) {
    throw Violation{FaultKind::kDivergence, "the lane is not at the barrier that others of its warp have reached",
                    __builtin_ctz(missing)};
  }
  const std::uint32_t number = uniform(warp, barrier, lanes, "the barrier");
  std::uint32_t warps = 0;
  if (threads.present) {
    const std::uint32_t count = uniform(warp, threads, lanes, "the number of threads");
    if (count == 0 || count % kLanes != 0) {
      throw Violation{FaultKind::kBarrier, std::to_string(count) + " threads at a barrier; accepted: multiples of 32"};
    }
    warps = count / kLanes;
  }
  return {number, warps};
}

template <bool waits>
void barrier(PtxWarp& warp, const Instruction& i, Mask lanes) {
  const BarrierUse use = barrier_of(warp, i.operands[0], i.operands[1], lanes);
  warp.block().cluster().note_event();
  warp.block().barriers().arrive(use.number, warp.index(), use.warps, waits);
  if (waits) warp.wait();
}

enum class Reduce { kCount, kAnd, kOr };

// result, barrier{, threads}, vote. The warp comes here twice: to vote, and for the result.
template <Reduce kind>
void barrier_reduce(PtxWarp& warp, const Instruction& i, Mask lanes) {
  Barriers& barriers = warp.block().barriers();
  if (!warp.has_voted()) {
    const BarrierUse use = barrier_of(warp, i.operands[1], i.operands[2], lanes);
    const Mask votes = warp.predicate(i.operands[3]) & lanes;
    warp.block().cluster().note_event();
    barriers.arrive_with(use.number, warp.index(), use.warps,
                         {static_cast<unsigned>(__builtin_popcount(votes)), votes == lanes, votes != 0});
    warp.wait_for_votes();
    return;
  }
  warp.take_votes();
  const Barriers::Votes& votes = barriers.votes(warp.index());
  if (kind == Reduce::kCount) {
    auto* out = warp.out<std::uint32_t>(i.operands[0]);
    for_lanes(lanes, [&](unsigned lane) { out[lane] = votes.count; });
  } else {
    const bool result = kind == Reduce::kAnd ? votes.all : votes.any;
    warp.set_predicate(i.operands[0], result ? kAllLanes : 0, lanes);
  }
}

}  // namespace

void add_control_forms(Forms& forms) {
  for (const std::string opcode : {"bra", "bra.uni"}) {
    forms.push_back({opcode, "L", bra, MemorySpace::kNone, 0, 1, Form::Control::kBranch});
  }
  forms.push_back({"trap", "", trap});
  forms.push_back({"brkpt", "", breakpoint});
  for (const std::string opcode : {"pmevent", "pmevent.mask"}) forms.push_back({opcode, "4", event});
  for (const std::string opcode : {"brx.idx", "brx.idx.uni"}) {
    forms.push_back({opcode, "4 J", brx, MemorySpace::kNone, 0, 1, Form::Control::kBranch});
  }
  for (const std::string opcode : {"call", "call.uni"}) {
    forms.push_back({opcode, "", call, MemorySpace::kNone, 0, 1, Form::Control::kCall});
  }
  for (const std::string opcode : {"ret", "ret.uni"}) {
    forms.push_back({opcode, "", ret, MemorySpace::kNone, 0, 1, Form::Control::kReturn});
  }
  forms.push_back({"exit", "", exit, MemorySpace::kNone, 0, 1, Form::Control::kReturn});
  for (const std::string opcode : {"bar.sync", "bar.cta.sync", "barrier.sync.aligned", "barrier.cta.sync.aligned",
                                   "barrier.sync", "barrier.cta.sync"}) {
    forms.push_back({opcode, "4 4?", barrier<true>});
  }
  for (const std::string opcode : {"bar.red", "bar.cta.red", "barrier.red", "barrier.cta.red"}) {
    for (const std::string aligned : {"", ".aligned"}) {
      if (opcode.compare(0, 4, "bar.") == 0 && !aligned.empty()) continue;
      forms.push_back({opcode + ".popc" + aligned + ".u32", "=4 4 4? p", barrier_reduce<Reduce::kCount>});
      forms.push_back({opcode + ".and" + aligned + ".pred", "=p 4 4? p", barrier_reduce<Reduce::kAnd>});
      forms.push_back({opcode + ".or" + aligned + ".pred", "=p 4 4? p", barrier_reduce<Reduce::kOr>});
    }
  }
  for (const std::string opcode : {"bar.arrive", "bar.cta.arrive", "barrier.arrive.aligned",
                                   "barrier.cta.arrive.aligned", "barrier.arrive", "barrier.cta.arrive"}) {
    forms.push_back({opcode, "4 4", barrier<false>});
  }
}

}  // namespace msa_ops::emulator::ptx

// Branches, the end of a kernel, and barriers of the thread block.
#include <string>
#include <type_traits>
#include <utility>

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

// d, bytes{, alignment}
template <typename T>
void take_stack(PtxWarp& warp, const Instruction& i, Mask lanes) {
  auto* to = warp.out<T>(i.operands[0]);
  for_lanes(lanes, [&](unsigned lane) {
    const std::uint64_t alignment = i.operands[2].present ? warp.value(i.operands[2], lane) : Stack::kAlignment;
    to[lane] = static_cast<T>(warp.stack().take(lane, warp.value(i.operands[1], lane), alignment));
  });
}
template <typename T>
void save_stack(PtxWarp& warp, const Instruction& i, Mask lanes) {
  auto* to = warp.out<T>(i.operands[0]);
  for_lanes(lanes, [&](unsigned lane) { to[lane] = static_cast<T>(warp.stack().top(lane)); });
}
void restore_stack(PtxWarp& warp, const Instruction& i, Mask lanes) {
  for_lanes(lanes, [&](unsigned lane) { warp.stack().give_back_to(lane, warp.value(i.operands[0], lane)); });
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

// The barrier and its number of warps, from the operands of these lanes.
BarrierUse barrier_of(PtxWarp& warp, const Operand& barrier, const Operand& threads, Mask lanes) {
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

// A warp arrives once, when all its live lanes have come, with .aligned at one instruction. Without, they may come from
// several places, each waits for the others, and each comes here again when they have. True if the lanes are the last.
template <bool aligned>
bool all_come(PtxWarp& warp, const BarrierUse& use, Mask lanes, Mask votes, bool waits) {
  const Mask missing = warp.live() & ~lanes;
  PtxWarp::Meeting& meeting = warp.meeting();
  if (aligned && missing != 0) {
    throw Violation{FaultKind::kDivergence, "the lane is not at the barrier that others of its warp have reached",
                    __builtin_ctz(missing)};
  }
  if (missing == 0 && meeting.come == 0) {
    meeting = {lanes, 0, use.number, use.warps, waits, votes};
    return true;
  }
  if (meeting.come == 0) meeting = {0, meeting.passed, use.number, use.warps, false, 0};
  if (meeting.barrier != use.number || meeting.warps != use.warps) {
    throw Violation{FaultKind::kBarrier,
                    "barrier " + std::to_string(use.number) + " of " + std::to_string(use.warps) +
                        " warps, while other lanes of the warp are at barrier " + std::to_string(meeting.barrier) +
                        " of " + std::to_string(meeting.warps) + " (0: all)",
                    __builtin_ctz(lanes)};
  }
  meeting.come |= lanes;
  meeting.votes |= votes;
  meeting.waits = meeting.waits || waits;
  if ((warp.live() & ~meeting.come) != 0) {
    warp.wait_for_lanes();
    return false;
  }
  meeting.passed = meeting.come & ~lanes & warp.live();
  return true;
}

// Whether these lanes have met the others of the warp, which has arrived.
bool has_passed(PtxWarp& warp, Mask lanes) {
  Mask& passed = warp.meeting().passed;
  if ((passed & lanes) != lanes) return false;
  passed &= ~lanes;
  return true;
}

template <bool waits, bool aligned>
void barrier(PtxWarp& warp, const Instruction& i, Mask lanes) {
  if (!aligned && has_passed(warp, lanes)) return;
  const BarrierUse use = barrier_of(warp, i.operands[0], i.operands[1], lanes);
  if (!all_come<aligned>(warp, use, lanes, 0, waits)) return;
  const bool some_wait = std::exchange(warp.meeting().waits, false);
  warp.meeting().come = 0;
  warp.note_change();
  warp.block().barriers().arrive(use.number, warp.index(), use.warps, some_wait);
  if (some_wait) warp.wait();
}

using Reduce = Barriers::Reduce;

// result, barrier{, threads}, vote. The warp comes here twice: to vote, and for the result.
template <Reduce kind, bool aligned>
void barrier_reduce(PtxWarp& warp, const Instruction& i, Mask lanes) {
  Barriers& barriers = warp.block().barriers();
  if (warp.has_voted()) {
    warp.take_votes();
  } else if (aligned || !has_passed(warp, lanes)) {
    const BarrierUse use = barrier_of(warp, i.operands[1], i.operands[2], lanes);
    if (!all_come<aligned>(warp, use, lanes, warp.predicate(i.operands[3]) & lanes, true)) return;
    const PtxWarp::Meeting& met = warp.meeting();
    warp.note_change();
    barriers.arrive_with(use.number, warp.index(), use.warps, kind,
                         {static_cast<unsigned>(__builtin_popcount(met.votes)), met.votes == met.come, met.votes != 0});
    warp.meeting().come = 0;
    warp.wait_for_votes();
    return;
  }
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
  forms.push_back({"alloca.u32", "=4 4 4?", take_stack<std::uint32_t>});
  forms.push_back({"alloca.u64", "=8 8 4?", take_stack<std::uint64_t>});
  forms.push_back({"stacksave.u32", "=4", save_stack<std::uint32_t>});
  forms.push_back({"stacksave.u64", "=8", save_stack<std::uint64_t>});
  forms.push_back({"stackrestore.u32", "4", restore_stack});
  forms.push_back({"stackrestore.u64", "8", restore_stack});
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
  const auto add_barriers = [&](const std::string& name, const std::string& tail, auto is_aligned) {
    constexpr bool aligned = decltype(is_aligned)::value;
    forms.push_back({name + ".sync" + tail, "4 4?", barrier<true, aligned>});
    forms.push_back({name + ".arrive" + tail, "4 4", barrier<false, aligned>});
    forms.push_back({name + ".red.popc" + tail + ".u32", "=4 4 4? p", barrier_reduce<Reduce::kCount, aligned>});
    forms.push_back({name + ".red.and" + tail + ".pred", "=p 4 4? p", barrier_reduce<Reduce::kAnd, aligned>});
    forms.push_back({name + ".red.or" + tail + ".pred", "=p 4 4? p", barrier_reduce<Reduce::kOr, aligned>});
  };
  for (const std::string block : {"", ".cta"}) {
    add_barriers("bar" + block, "", std::true_type{});
    add_barriers("barrier" + block, ".aligned", std::true_type{});
    add_barriers("barrier" + block, "", std::false_type{});
  }
}

}  // namespace msa_ops::emulator::ptx

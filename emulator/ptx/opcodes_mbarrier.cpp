// mbarrier objects: arrivals, transaction counts and waiting.
#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "addresses.hpp"
#include "lanes.hpp"
#include "opcodes.hpp"

namespace msa_ops::emulator::ptx {
namespace {

SharedPlace place_of(PtxWarp& warp, const Instruction& i, const Operand& base, unsigned lane) {
  const MemorySpace space = i.form->memory;
  return shared_place(warp, address_of(warp, base, lane, i.offset, space), space, lane);
}

// Calls function(block's mbarriers, mbarrier, lane) for each lane.
template <typename Function>
void for_barriers(PtxWarp& warp, const Instruction& i, const Operand& base, Mask lanes, Function function) {
  for_lanes(lanes, [&](unsigned lane) {
    const SharedPlace place = place_of(warp, i, base, lane);
    Mbarriers& barriers = place.block->mbarriers();
    function(barriers, barriers.at(place.address, static_cast<int>(lane)), lane);
  });
}

void init(PtxWarp& warp, const Instruction& i, Mask lanes) {
  // Lanes that give one mbarrier the same count are as good as one of them.
  std::vector<std::pair<std::uint64_t, std::uint32_t>> done;
  for_lanes(lanes, [&](unsigned lane) {
    const SharedPlace place = place_of(warp, i, i.operands[0], lane);
    const auto count = static_cast<std::uint32_t>(warp.value(i.operands[1], lane));
    const std::pair<std::uint64_t, std::uint32_t> one{place.address, count};
    if (std::find(done.begin(), done.end(), one) != done.end()) return;
    place.block->mbarriers().init(place.address, count, static_cast<int>(lane));
    done.push_back(one);
  });
}

void invalidate(PtxWarp& warp, const Instruction& i, Mask lanes) {
  for_lanes(lanes, [&](unsigned lane) {
    const SharedPlace place = place_of(warp, i, i.operands[0], lane);
    place.block->mbarriers().invalidate(place.address, static_cast<int>(lane));
  });
}

enum class Bytes { kNone, kExpect };

// state, [address]{, count}   and   state, [address], bytes
template <Bytes bytes, bool drops, bool may_complete>
void arrive(PtxWarp& warp, const Instruction& i, Mask lanes) {
  warp.note_change();
  for_barriers(warp, i, i.operands[1], lanes, [&](Mbarriers& barriers, Mbarrier& barrier, unsigned lane) {
    const int who = static_cast<int>(lane);
    std::uint32_t count = 1;
    if (i.operands[2].present) {
      const auto value = static_cast<std::uint32_t>(warp.value(i.operands[2], lane));
      if (bytes == Bytes::kExpect) barriers.expect_bytes(barrier, value, who);
      else count = value;
    }
    if (drops) barriers.drop(barrier, count, who);
    const std::uint64_t state = barriers.arrive(barrier, count, i.order != Order::kRelaxed, may_complete, who);
    warp.set_value(i.operands[0], lane, state);
  });
}

void expect(PtxWarp& warp, const Instruction& i, Mask lanes) {
  for_barriers(warp, i, i.operands[0], lanes, [&](Mbarriers& barriers, Mbarrier& barrier, unsigned lane) {
    barriers.expect_bytes(barrier, static_cast<std::uint32_t>(warp.value(i.operands[1], lane)), static_cast<int>(lane));
  });
}

void complete(PtxWarp& warp, const Instruction& i, Mask lanes) {
  warp.note_change();
  for_barriers(warp, i, i.operands[0], lanes, [&](Mbarriers& barriers, Mbarrier& barrier, unsigned lane) {
    ++barrier.in_flight;
    barriers.work_done(barrier, static_cast<std::uint32_t>(warp.value(i.operands[1], lane)));
  });
}

// done, [address], state-or-parity{, time}
// Either may find the phase incomplete; so one whose result decides nothing does not wait, and orders nothing. With a
// seed one fails now and then also where the phase is complete, unless its warp knows that already.
template <bool parity, bool blocks>
void wait(PtxWarp& warp, const Instruction& i, Mask lanes) {
  Mask done = 0, may_fail = 0;
  std::array<const Mbarrier*, kLanes> found;  // of the lanes that wait
  const bool drawn = !i.ignored && warp.wait_fails();
  for_barriers(warp, i, i.operands[1], lanes, [&](Mbarriers&, Mbarrier& barrier, unsigned lane) {
    // Of a parity the lowest bit counts: ptxas shifts the others out, and Triton gives minus one for 1.
    const std::uint64_t value = warp.value(i.operands[2], lane) & (parity ? 1 : ~std::uint64_t{0});
    found[lane] = &barrier;
    const bool complete = parity ? Mbarriers::complete_parity(barrier, static_cast<std::uint32_t>(value))
                                 : Mbarriers::complete(barrier, value);
    if (complete) done |= Mask{1} << lane;
    if (!drawn) return;
    const std::uint64_t phase = parity ? barrier.phase : (value >> 32) + 1;
    if (!complete || !Mbarriers::known_complete(barrier, phase, warp.ordering())) may_fail |= Mask{1} << lane;
  });
  const bool fails = may_fail != 0;
  if (fails && (done & may_fail) != 0) warp.note_change();  // by chance: the next time it may go on
  if (fails) done &= ~may_fail;
  if (done == 0 && blocks && !i.ignored) {
    const bool timed_out = warp.block().timed_out(warp.index(), lanes);
    if (!fails && !timed_out) return warp.wait_for(*found[static_cast<unsigned>(__builtin_ctz(lanes))]);
  }
  if (!i.ignored) {
    // A relaxed wait is taken up at the next fence.
    for_lanes(done, [&](unsigned lane) { warp.ordering().take_up(found[lane]->complete, i.order != Order::kRelaxed); });
  }
  warp.set_predicate(i.operands[0], done, lanes);
  if (done != lanes) warp.give_way();
}

void pending_count(PtxWarp& warp, const Instruction& i, Mask lanes) {
  auto* out = warp.out<std::uint32_t>(i.operands[0]);
  for_lanes(lanes, [&](unsigned lane) {
    out[lane] = static_cast<std::uint32_t>(warp.value(i.operands[1], lane) & 0xffffffffU);
  });
}

}  // namespace

void add_mbarrier_forms(Forms& forms) {
  const std::pair<std::string, MemorySpace> own[] = {{"", MemorySpace::kGeneric}, {".shared", MemorySpace::kShared}};
  const std::pair<std::string, MemorySpace> any[] = {
      {"", MemorySpace::kGeneric}, {".shared", MemorySpace::kShared}, {".shared::cluster", MemorySpace::kCluster}};
  for (const auto& [space, memory] : own) {
    const auto add = [&, memory = memory](const std::string& opcode, const char* operands, Handler handler) {
      forms.push_back({opcode, operands, handler, memory});
    };
    add("mbarrier.init" + space + ".b64", "A 4", init);
    add("mbarrier.inval" + space + ".b64", "A", invalidate);
    add("mbarrier.arrive.noComplete" + space + ".b64", "=8 A 4", arrive<Bytes::kNone, false, false>);
    add("mbarrier.arrive_drop.noComplete" + space + ".b64", "=8 A 4", arrive<Bytes::kNone, true, false>);
    add("mbarrier.test_wait" + space + ".b64", "=p A 8", wait<false, false>);
    add("mbarrier.test_wait.parity" + space + ".b64", "=p A 4", wait<true, false>);
    add("mbarrier.try_wait" + space + ".b64", "=p A 8 4?", wait<false, true>);
    add("mbarrier.try_wait.parity" + space + ".b64", "=p A 4 4?", wait<true, true>);
  }
  for (const auto& [space, memory] : any) {
    const auto add = [&, memory = memory](const std::string& opcode, const char* operands, Handler handler) {
      forms.push_back({opcode, operands, handler, memory});
    };
    add("mbarrier.arrive" + space + ".b64", "=8 A 4?", arrive<Bytes::kNone, false, true>);
    add("mbarrier.arrive_drop" + space + ".b64", "=8 A 4?", arrive<Bytes::kNone, true, true>);
    add("mbarrier.arrive.expect_tx" + space + ".b64", "=8 A 4", arrive<Bytes::kExpect, false, true>);
    add("mbarrier.arrive_drop.expect_tx" + space + ".b64", "=8 A 4", arrive<Bytes::kExpect, true, true>);
    add("mbarrier.expect_tx" + space + ".b64", "A 4", expect);
    add("mbarrier.complete_tx" + space + ".b64", "A 4", complete);
  }
  forms.push_back({"mbarrier.pending_count.b64", "=4 8", pending_count});
}

}  // namespace msa_ops::emulator::ptx

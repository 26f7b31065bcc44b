// Clusters of thread blocks, fences, and what the hardware is told about registers.
#include <algorithm>
#include <string>
#include <utility>

#include "addresses.hpp"
#include "lanes.hpp"
#include "opcodes.hpp"

namespace msa_ops::emulator::ptx {
namespace {

void want_all(PtxWarp& warp, Mask lanes) {
  if (const Mask missing = warp.live() & ~lanes; missing != 0) {
    throw Violation{FaultKind::kDivergence, "the lane is not at the barrier that others of its warp have reached",
                    __builtin_ctz(missing)};
  }
}

template <bool aligned>
void cluster_arrive(PtxWarp& warp, const Instruction& i, Mask lanes) {
  if (aligned) want_all(warp, lanes);
  warp.note_change();
  warp.block().cluster().barrier().arrive(warp.actor_warp(), lanes, warp.live(), i.order != Order::kRelaxed);
}

template <bool aligned>
void cluster_wait(PtxWarp& warp, const Instruction&, Mask lanes) {
  if (aligned) want_all(warp, lanes);
  if (!warp.block().cluster().barrier().passed(warp.actor_warp(), lanes, true)) warp.wait_for_cluster();
}

// The address of the same variable in another block of the cluster. One of a block that the cluster has not may be
// made, as kernels do whose first lanes alone use theirs; using it is the fault.
template <bool generic>
void mapa(PtxWarp& warp, const Instruction& i, Mask lanes) {
  const unsigned shift = warp.kernel().rank_shift();
  const std::uint64_t own = (std::uint64_t{1} << shift) - 1;
  for_lanes(lanes, [&](unsigned lane) {
    std::uint64_t address = warp.value(i.operands[1], lane);
    if (generic && space_of(address) != MemorySpace::kCluster) {
      throw Violation{FaultKind::kOutOfBounds, "a generic address that is not one of shared memory",
                      static_cast<int>(lane), address};
    }
    const std::uint64_t rank = std::min<std::uint64_t>(warp.value(i.operands[2], lane), 0xff);
    address = (address & own) | rank << shift;
    warp.set_value(i.operands[0], lane, generic ? address + kSharedWindow : address);
  });
}

template <bool generic>
void rank_of_address(PtxWarp& warp, const Instruction& i, Mask lanes) {
  auto* out = warp.out<std::uint32_t>(i.operands[0]);
  for_lanes(lanes, [&](unsigned lane) {
    std::uint64_t address = warp.value(i.operands[1], lane);
    if (generic) space_of(address);
    out[lane] = static_cast<std::uint32_t>(address >> warp.kernel().rank_shift());
  });
}

using Fence = Ordering::Fence;

template <Fence kind>
void fence(PtxWarp& warp, const Instruction& i, Mask) { warp.ordering().fence(i.scope, kind); }
template <bool shared, bool global>
void fence_proxy(PtxWarp& warp, const Instruction&, Mask) { warp.ordering().fence_proxy(shared, global); }
void nothing(PtxWarp&, const Instruction&, Mask) {}

// Launches run one after the other here; what counts is that the block has asked.
void wait_for_launches(PtxWarp& warp, const Instruction&, Mask) {
  if (warp.block().wait_for_earlier_launches(warp.index())) warp.give_way();
}
void give_way(PtxWarp& warp, const Instruction&, Mask) { warp.give_way(); }

template <bool increase>
void set_registers(PtxWarp& warp, const Instruction& i, Mask lanes) {
  want_all(warp, lanes);
  const auto count =
      static_cast<unsigned>(warp.value(i.operands[0], static_cast<unsigned>(__builtin_ctz(lanes))));
  if (!warp.block().register_pool().change(warp.index(), increase, count)) return warp.wait_for_registers(count);
  warp.note_change();
}

}  // namespace

void add_cluster_forms(Forms& forms) {
  for (const std::string order : {"", ".release", ".relaxed"}) {
    forms.push_back({"barrier.cluster.arrive" + order, "", cluster_arrive<false>});
    forms.push_back({"barrier.cluster.arrive" + order + ".aligned", "", cluster_arrive<true>});
  }
  for (const std::string order : {"", ".acquire"}) {
    forms.push_back({"barrier.cluster.wait" + order, "", cluster_wait<false>});
    forms.push_back({"barrier.cluster.wait" + order + ".aligned", "", cluster_wait<true>});
  }
  forms.push_back({"mapa.shared::cluster.u32", "=4 4 4", mapa<false>});
  forms.push_back({"mapa.shared::cluster.u64", "=8 8 4", mapa<false>});
  forms.push_back({"mapa.u32", "=4 4 4", mapa<false>});  // 32 bits are an address of shared memory
  forms.push_back({"mapa.u64", "=8 8 4", mapa<true>});
  forms.push_back({"getctarank.u32", "=4 4", rank_of_address<false>});
  forms.push_back({"getctarank.shared::cluster.u32", "=4 4", rank_of_address<false>});
  forms.push_back({"getctarank.shared::cluster.u64", "=4 8", rank_of_address<false>});
  forms.push_back({"getctarank.u64", "=4 8", rank_of_address<true>});
  const std::pair<const char*, Handler> kinds[] = {{"", fence<Fence::kBoth>},
                                                   {".acq_rel", fence<Fence::kBoth>},
                                                   {".sc", fence<Fence::kSequential>},
                                                   {".acquire", fence<Fence::kAcquire>},
                                                   {".release", fence<Fence::kRelease>}};
  for (const auto& [order, handler] : kinds) {
    for (const char* scope : {".cta", ".cluster", ".gpu", ".sys"}) {
      forms.push_back({std::string("fence") + order + scope, "", handler});
    }
  }
  for (const std::string level : {"cta", "gl", "sys"}) {  // PTX: fence.sc by another name
    forms.push_back({"membar." + level, "", fence<Fence::kSequential>});
  }
  forms.push_back({"fence.proxy.async", "", fence_proxy<true, true>});
  forms.push_back({"fence.proxy.async.global", "", fence_proxy<false, true>});
  for (const std::string space : {".shared::cta", ".shared::cluster"}) {
    forms.push_back({"fence.proxy.async" + space, "", fence_proxy<true, false>});
  }
  const std::pair<const char*, Handler> halves[] = {
      {"acquire.sync_restrict::shared::cluster", fence<Fence::kAcquire>},
      {"release.sync_restrict::shared::cta", fence<Fence::kRelease>}};
  for (const auto& [half, handler] : halves) {
    forms.push_back({std::string("fence.") + half + ".cluster", "", handler});
    forms.push_back({std::string("fence.proxy.async::generic.") + half + ".cluster", "", fence_proxy<true, false>});
  }
  forms.push_back({"fence.proxy.alias", "", nothing});
  forms.push_back({"membar.proxy.alias", "", nothing});
  // PTX promises only that it covers initialisations.
  forms.push_back({"fence.mbarrier_init.release.cluster", "", fence<Fence::kRelease>});
  forms.push_back({"griddepcontrol.launch_dependents", "", nothing});
  forms.push_back({"griddepcontrol.wait", "", wait_for_launches});
  forms.push_back({"setmaxnreg.inc.sync.aligned.u32", "4", set_registers<true>});
  forms.push_back({"setmaxnreg.dec.sync.aligned.u32", "4", set_registers<false>});
  forms.push_back({"nanosleep.u32", "4", give_way});
}

}  // namespace msa_ops::emulator::ptx

// Cluster launch control: a running cluster takes the place of one that has not started. And registers of 128 bits,
// which hold its answers.
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "addresses.hpp"
#include "landing.hpp"
#include "lanes.hpp"
#include "opcodes.hpp"

namespace msa_ops::emulator::ptx {
namespace {

struct Quad {
  std::uint32_t words[4];
};
static_assert(sizeof(Quad) == 16);

// The answer: whether a cluster was cancelled, and the index of its first block.
class TryCancel : public AsyncOperation {
 public:
  TryCancel(WorkList& work, std::vector<SharedPlace> to) : work_(work), to_(std::move(to)) {}
  void write() override {
    std::array<unsigned, 3> first{};
    const bool cancelled = work_.take(first);
    const Quad answer{{first[0], first[1], first[2], cancelled ? 1U : 0U}};
    for (const SharedPlace& to : to_) {
      std::memcpy(to.block->shared().bytes(to.address, sizeof(answer)), &answer, sizeof(answer));
      to.block->shared().mark_written(to.address, sizeof(answer));
    }
  }

 private:
  WorkList& work_;
  std::vector<SharedPlace> to_;
};

// [shared], [mbarrier]: 16 bytes, to this block or to the same place in every block of the cluster
template <bool all>
void try_cancel(PtxWarp& warp, const Instruction& i, Mask lanes) {
  for_lanes(lanes, [&](unsigned lane) {
    const int who = static_cast<int>(lane);
    const unsigned shift = warp.kernel().rank_shift();
    const std::uint64_t own = (std::uint64_t{1} << shift) - 1;
    const auto address = [&](unsigned operand) {
      const Operand& one = i.operands[operand];
      std::uint64_t value = address_of(warp, one, lane, one.addend, MemorySpace::kGeneric);
      if (in_window(value, kSharedWindow)) value -= kSharedWindow;
      return value & 0xffffffffU;
    };
    const std::uint64_t to = address(0), barrier = address(1);
    if (to % 16 != 0) throw Violation{FaultKind::kMisaligned, "an answer of 16 bytes", who, to};
    Cluster& cluster = warp.block().cluster();
    Issue issue;
    std::vector<SharedPlace> places;
    for (unsigned rank = 0; rank < cluster.size(); ++rank) {
      if (!all && rank != warp.block().rank()) continue;
      const std::uint64_t bits = std::uint64_t{rank} << shift;
      const SharedPlace place = shared_place(warp, (to & own) | bits, MemorySpace::kCluster, lane);
      const SharedPlace signalled = shared_place(warp, (barrier & own) | bits, MemorySpace::kCluster, lane);
      const Landing landing = landing_on(warp, signalled, sizeof(Quad), who);
      place.block->shared().will_write(place.address, sizeof(Quad), 16, landing.access, who);
      places.push_back(place);
      issue.signals.push_back(landing.signal);
      issue.blocks.push_back(place.block);
    }
    issue.operation = std::make_unique<TryCancel>(cluster.work(), std::move(places));
    cluster.async().issue(std::move(issue), warp.origin());
  });
}

void is_cancelled(PtxWarp& warp, const Instruction& i, Mask lanes) {
  const auto* answers = warp.row<Quad>(i.operands[1]);
  Mask result = 0;
  for_lanes(lanes, [&](unsigned lane) { result |= static_cast<Mask>(answers[lane].words[3] != 0) << lane; });
  warp.set_predicate(i.operands[0], result, lanes);
}

// Lanes whose answer is that nothing was cancelled: what they ask about the first block has no value. Kernels ask
// before they look at the predicate.
Mask without_block(const Quad* answers, Mask lanes) {
  Mask result = 0;
  for_lanes(lanes, [&](unsigned lane) { result |= static_cast<Mask>(answers[lane].words[3] == 0) << lane; });
  return result;
}

template <unsigned dimension>
void first_block(PtxWarp& warp, const Instruction& i, Mask lanes) {
  const auto* answers = warp.row<Quad>(i.operands[1]);
  warp.leave_undefined(i.operands[0], without_block(answers, lanes));
  auto* out = warp.out<std::uint32_t>(i.operands[0]);
  for_lanes(lanes, [&](unsigned lane) { out[lane] = answers[lane].words[dimension]; });
}

void first_block_of_all(PtxWarp& warp, const Instruction& i, Mask lanes) {
  const auto* answers = warp.row<Quad>(i.operands[4]);
  const Mask missing = without_block(answers, lanes);
  for (unsigned at = 0; at < 4; ++at) {
    if (i.operands[at].present) warp.leave_undefined(i.operands[at], missing);
    for_lanes(lanes, [&](unsigned lane) {
      warp.out<std::uint32_t>(i.operands[at])[lane] = at < 3 ? answers[lane].words[at] : 0;
    });
  }
}

// ---- registers of 128 bits

void pack(PtxWarp& warp, const Instruction& i, Mask lanes) {
  auto* out = warp.out<std::array<std::uint64_t, 2>>(i.operands[0]);
  for_lanes(lanes, [&](unsigned lane) {
    out[lane] = {warp.row<std::uint64_t>(i.operands[1])[lane], warp.row<std::uint64_t>(i.operands[2])[lane]};
  });
}

void unpack(PtxWarp& warp, const Instruction& i, Mask lanes) {
  const auto* in = warp.row<std::array<std::uint64_t, 2>>(i.operands[2]);
  for_lanes(lanes, [&](unsigned lane) {
    const auto value = in[lane];
    warp.out<std::uint64_t>(i.operands[0])[lane] = value[0];
    warp.out<std::uint64_t>(i.operands[1])[lane] = value[1];
  });
}

void move(PtxWarp& warp, const Instruction& i, Mask lanes) {
  const auto* in = warp.row<Quad>(i.operands[1]);
  auto* out = warp.out<Quad>(i.operands[0]);
  for_lanes(lanes, [&](unsigned lane) { out[lane] = in[lane]; });
}

void pack_words(PtxWarp& warp, const Instruction& i, Mask lanes) {
  auto* out = warp.out<Quad>(i.operands[0]);
  for_lanes(lanes, [&](unsigned lane) {
    for (unsigned at = 0; at < 4; ++at) out[lane].words[at] = warp.row<std::uint32_t>(i.operands[1 + at])[lane];
  });
}

void unpack_words(PtxWarp& warp, const Instruction& i, Mask lanes) {
  const auto* in = warp.row<Quad>(i.operands[4]);
  for_lanes(lanes, [&](unsigned lane) {
    for (unsigned at = 0; at < 4; ++at) warp.out<std::uint32_t>(i.operands[at])[lane] = in[lane].words[at];
  });
}

void load_parameter(PtxWarp& warp, const Instruction& i, Mask lanes) {
  auto* out = warp.out<Quad>(i.operands[0]);
  const auto* from = warp.kernel().parameter_bytes().data() + i.offset;
  for_lanes(lanes, [&](unsigned lane) { std::memcpy(&out[lane], from, sizeof(Quad)); });
}

template <MemorySpace space>
bool is_global(std::uint64_t address) {
  return space == MemorySpace::kGeneric ? space_of(address) == MemorySpace::kGlobal : space == MemorySpace::kGlobal;
}

template <MemorySpace space>
void load(PtxWarp& warp, const Instruction& i, Mask lanes) {
  auto* out = warp.out<Quad>(i.operands[0]);
  for_lanes(lanes, [&](unsigned lane) {
    const std::uint64_t address = address_of(warp, i.operands[1], lane, i.offset, space);
    std::memcpy(&out[lane], access<Use::kRead>(warp, i, address, sizeof(Quad), space, lane), sizeof(Quad));
    if (is_global<space>(address)) warp.count_read(sizeof(Quad));
  });
}

template <MemorySpace space>
void store(PtxWarp& warp, const Instruction& i, Mask lanes) {
  const auto* in = warp.row<Quad>(i.operands[1]);
  for_lanes(lanes, [&](unsigned lane) {
    const std::uint64_t address = address_of(warp, i.operands[0], lane, i.offset, space);
    std::memcpy(access<Use::kWrite>(warp, i, address, sizeof(Quad), space, lane), &in[lane], sizeof(Quad));
    if (is_global<space>(address)) warp.count_written(sizeof(Quad));
  });
}

template <MemorySpace space>
void add_quad_accesses(Forms& forms, const std::string& name) {
  const std::string hint = space == MemorySpace::kGlobal || space == MemorySpace::kGeneric ? " 8?" : "";
  forms.push_back({"ld" + name + ".b128", "=q A" + hint, load<space>, space});
  forms.push_back({"st" + name + ".b128", "A q" + hint, store<space>, space});
}

}  // namespace

void add_launch_forms(Forms& forms) {
  const std::string landed = ".mbarrier::complete_tx::bytes";
  for (const std::string space : {"", ".shared"}) {
    const std::string name = "clusterlaunchcontrol.try_cancel.async" + space + landed;
    forms.push_back({name + ".b128", "S S", try_cancel<false>, MemorySpace::kShared});
    forms.push_back({name + ".multicast::cluster::all.b128", "S S", try_cancel<true>, MemorySpace::kShared});
  }
  forms.push_back({"clusterlaunchcontrol.query_cancel.is_canceled.pred.b128", "=p q", is_cancelled});
  forms.push_back({"clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128", "=4 q", first_block<0>});
  forms.push_back({"clusterlaunchcontrol.query_cancel.get_first_ctaid::y.b32.b128", "=4 q", first_block<1>});
  forms.push_back({"clusterlaunchcontrol.query_cancel.get_first_ctaid::z.b32.b128", "=4 q", first_block<2>});
  forms.push_back({"clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128", "=4*4 q", first_block_of_all});
  forms.push_back({"mov.b128", "=q q", move});
  forms.push_back({"mov.b128 pack2", "=q 8,8", pack});
  forms.push_back({"mov.b128 unpack2", "=8,8 q", unpack});
  forms.push_back({"mov.b128 pack4", "=q 4,4,4,4", pack_words});
  forms.push_back({"mov.b128 unpack4", "=4,4,4,4 q", unpack_words});
  forms.push_back({"ld.param.b128", "=q A", load_parameter, MemorySpace::kParameter, sizeof(Quad)});
  add_quad_accesses<MemorySpace::kGlobal>(forms, ".global");
  add_quad_accesses<MemorySpace::kGeneric>(forms, "");
  add_quad_accesses<MemorySpace::kShared>(forms, ".shared");
  add_quad_accesses<MemorySpace::kCluster>(forms, ".shared::cluster");
  add_quad_accesses<MemorySpace::kLocal>(forms, ".local");
  forms.push_back({"ld.const.b128", "=q A", load<MemorySpace::kConstant>, MemorySpace::kConstant});
}

}  // namespace msa_ops::emulator::ptx

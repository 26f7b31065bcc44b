// Asynchronous copies between global and shared memory, and stores and reductions that signal an mbarrier.
#include <algorithm>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "addresses.hpp"
#include "landing.hpp"
#include "lanes.hpp"
#include "opcodes.hpp"
#include "reduction.hpp"

namespace msa_ops::emulator::ptx {
namespace {

std::uint64_t place(PtxWarp& warp, const Operand& operand, unsigned lane, MemorySpace space) {
  return address_of(warp, operand, lane, operand.addend, space);
}

std::uint64_t global_place(PtxWarp& warp, const Operand& operand, unsigned lane) {
  const std::int64_t displacement = static_cast<std::int32_t>(operand.addend);
  return warp.value(operand, lane) + static_cast<std::uint64_t>(displacement);
}

// ---- cp.async: of single threads, in the generic proxy

// [shared], [global], bytes{, source bytes}{, ignore source}{, policy}
void cp_async(PtxWarp& warp, const Instruction& i, Mask lanes) {
  Ordering& ordering = warp.ordering();
  const AccessId access =
      ordering.of_work(ordering.actor(warp.actor_warp(), Ordering::Queue::kCopies), warp.copies().clock(), true);
  const Mask ignored = i.operands[4].present ? warp.predicate(i.operands[4]) : 0;
  for_lanes(lanes, [&](unsigned lane) {
    const int who = static_cast<int>(lane);
    const auto bytes = static_cast<std::uint32_t>(warp.value(i.operands[2], lane));
    auto given = i.operands[3].present ? static_cast<std::uint32_t>(warp.value(i.operands[3], lane)) : bytes;
    if (bytes != 4 && bytes != 8 && bytes != 16) {
      throw Violation{FaultKind::kAsync, std::to_string(bytes) + " bytes; accepted: 4, 8 and 16", who};
    }
    if (given > bytes) throw Violation{FaultKind::kAsync, "more source bytes than bytes to copy", who};
    if ((ignored >> lane & 1) != 0) given = 0;
    const std::uint64_t to = place(warp, i.operands[0], lane, MemorySpace::kShared);
    const std::uint64_t from = global_place(warp, i.operands[1], lane);
    SharedMemory& shared = shared_place(warp, to, MemorySpace::kShared, lane).block->shared();
    shared.will_write(to, bytes, bytes, access, who);
    const std::byte* source = given > 0 ? warp.block().global().range(from, given, bytes, false, who) : nullptr;
    if (given > 0) warp.block().cluster().watch().use(from, given, false, {false, Reach::kSystem, access}, who);
    warp.copies().add({lane, bytes, given, to, source, 0});
    warp.count_bytes(PtxWarp::Space::kShared, true, bytes);
    warp.count_read(given);
  });
}

void cp_async_commit(PtxWarp& warp, const Instruction&, Mask lanes) { warp.copies().commit(lanes); }

void cp_async_wait(PtxWarp& warp, const Instruction& i, Mask lanes) {
  const auto count = static_cast<std::uint32_t>(warp.value(i.operands[0], static_cast<unsigned>(__builtin_ctz(lanes))));
  const Clock seen = warp.copies().wait(lanes, count, warp.block().shared());
  warp.ordering().acquire(warp.ordering().actor(warp.actor_warp(), Ordering::Queue::kCopies), seen);
}

void cp_async_wait_all(PtxWarp& warp, const Instruction&, Mask lanes) {
  const Clock seen = warp.copies().wait_all(lanes, warp.block().shared());
  warp.ordering().acquire(warp.ordering().actor(warp.actor_warp(), Ordering::Queue::kCopies), seen);
}

// What a warp has copied until then is there.
class CopiesDone : public AsyncOperation {
 public:
  CopiesDone(Copies& copies, SharedMemory& shared, Mask lanes, Clock clock)
      : copies_(copies), shared_(shared), lanes_(lanes), clock_(clock) {}
  void write() override { copies_.finish(lanes_, clock_, shared_); }

 private:
  Copies& copies_;
  SharedMemory& shared_;
  Mask lanes_;
  Clock clock_;
};

template <bool counts>
void cp_async_arrive(PtxWarp& warp, const Instruction& i, Mask lanes) {
  Ordering& ordering = warp.ordering();
  const Actor actor = ordering.actor(warp.actor_warp(), Ordering::Queue::kCopies);
  const Clock clock = warp.copies().close();
  Knowledge knowledge;
  ordering.release(knowledge);
  if (knowledge.seen.size() <= actor) knowledge.seen.resize(actor + 1, 0);
  knowledge.seen[actor] = clock;
  Issue issue;
  issue.operation = std::make_unique<CopiesDone>(warp.copies(), warp.block().shared(), lanes, clock);
  for_lanes(lanes, [&](unsigned lane) {
    const std::uint64_t address = address_of(warp, i.operands[0], lane, i.offset, i.form->memory);
    const SharedPlace where = shared_place(warp, address, i.form->memory, lane);
    Mbarriers& barriers = where.block->mbarriers();
    Mbarrier& barrier = barriers.at(where.address, static_cast<int>(lane));
    if (where.block != &warp.block()) where.block->shared().remote_use().note_work_arrival(actor, clock);
    if (!counts) ++barrier.pending;
    issue.signals.push_back({&barriers, &barrier, 0, true, knowledge});
  });
  warp.block().cluster().async().issue(std::move(issue), warp.origin());
}

// ---- bulk copies, in the asynchronous proxy

void check_bulk(std::uint64_t to, std::uint64_t from, std::uint64_t bytes, int lane) {
  if (bytes % 16 != 0) {
    throw Violation{FaultKind::kAsync, "a bulk copy of " + std::to_string(bytes) + " bytes; accepted: multiples of 16",
                    lane};
  }
  const auto want_aligned = [&](std::uint64_t address, const char* what) {
    if (address % 16 != 0) {
      throw Violation{FaultKind::kMisaligned, std::string(what) + " of a bulk copy; it takes 16 bytes", lane, address};
    }
  };
  want_aligned(to, "the destination");
  want_aligned(from, "the source");
}

// From global memory to the same place in the shared memory of one or more blocks.
class LoadBulk : public AsyncOperation {
 public:
  LoadBulk(const std::byte* from, std::size_t bytes, std::vector<SharedPlace> to)
      : from_(from), bytes_(bytes), to_(std::move(to)) {}
  void write() override {
    for (const SharedPlace& to : to_) {
      std::memcpy(to.block->shared().bytes(to.address, bytes_), from_, bytes_);
      to.block->shared().mark_written(to.address, bytes_);
    }
  }

 private:
  const std::byte* from_;
  std::size_t bytes_;
  std::vector<SharedPlace> to_;
};

// [shared], [global], bytes, [mbarrier]{, mask of blocks}{, policy}
template <bool multicast>
void load_bulk(PtxWarp& warp, const Instruction& i, Mask lanes) {
  for_lanes(lanes, [&](unsigned lane) {
    const int who = static_cast<int>(lane);
    const std::uint64_t to = place(warp, i.operands[0], lane, i.form->memory);
    const std::uint64_t from = global_place(warp, i.operands[1], lane);
    const std::uint64_t bytes = warp.value(i.operands[2], lane);
    const std::uint64_t barrier = place(warp, i.operands[3], lane, i.form->memory);
    check_bulk(to, from, bytes, who);
    if (bytes == 0) return;
    const std::byte* source = warp.block().global().range(from, bytes, 16, false, who);
    warp.count_read(bytes);
    Issue issue;
    std::vector<SharedPlace> destinations;
    const auto add = [&](const SharedPlace& destination, const SharedPlace& signalled) {
      const Landing end = landing_on(warp, signalled, static_cast<std::int64_t>(bytes), who);
      destination.block->shared().will_write(destination.address, bytes, 16, end.access, who);
      warp.block().cluster().watch().use(from, bytes, false, {false, Reach::kSystem, end.access}, who);
      destinations.push_back(destination);
      warp.count_bytes(*destination.block, true, bytes);
      issue.signals.push_back(end.signal);
      issue.blocks.push_back(destination.block);
    };
    if (multicast) {
      const std::uint64_t mask = warp.value(i.operands[4], lane);
      const unsigned shift = warp.kernel().rank_shift();
      const std::uint64_t own = (std::uint64_t{1} << shift) - 1;
      for (std::uint64_t rank = 0; rank < 16; ++rank) {
        if ((mask >> rank & 1) == 0) continue;
        const auto there = [&](std::uint64_t address) {
          return shared_place(warp, (address & own) | rank << shift, MemorySpace::kCluster, lane);
        };
        add(there(to), there(barrier));
      }
    } else {
      const SharedPlace destination = shared_place(warp, to, i.form->memory, lane);
      const SharedPlace signalled = shared_place(warp, barrier, i.form->memory, lane);
      if (destination.block != signalled.block) {
        throw Violation{FaultKind::kAsync, "the mbarrier is in another block than the destination", who, barrier};
      }
      add(destination, signalled);
    }
    issue.operation = std::make_unique<LoadBulk>(source, bytes, std::move(destinations));
    warp.block().cluster().async().issue(std::move(issue), warp.origin());
  });
}

// From shared memory of the block, to shared memory of the cluster or to global memory, of several devices if the address
// is a multicast one; copied or reduced into it.
class StoreBulk : public AsyncOperation {
 public:
  StoreBulk(SharedMemory& source, std::uint64_t from, std::size_t bytes, std::vector<std::byte*> to,
            SharedMemory* shared_to, std::uint64_t shared_address, Reduction reduction, std::uint32_t mask)
      : source_(source), from_(from), to_(std::move(to)), shared_to_(shared_to), shared_address_(shared_address),
        reduction_(reduction), mask_(mask), taken_(bytes) {}
  void read() override { std::memcpy(taken_.data(), source_.bytes(from_, taken_.size()), taken_.size()); }
  void write() override {
    if (shared_to_ == nullptr) {
      for (std::byte* to : to_) write_to(to);
    } else {
      write_to(shared_to_->bytes(shared_address_, taken_.size()));
      if (reduction_ == nullptr) shared_to_->sent(shared_address_, taken_.size(), source_.bytes(from_, taken_.size()));
    }
  }
  static constexpr std::uint32_t kWhole = 0xffff;

 private:
  void write_to(std::byte* to) const {
    if (reduction_ != nullptr) {
      static std::mutex mutex;  // threads of the host may reduce into the same global memory
      const std::lock_guard<std::mutex> lock(mutex);
      reduction_(to, taken_.data(), taken_.size());
    } else if (mask_ != kWhole) {
      for (std::size_t at = 0; at < taken_.size(); ++at) {
        if ((mask_ >> at % 16 & 1) != 0) to[at] = taken_[at];
      }
    } else {
      std::memcpy(to, taken_.data(), taken_.size());
    }
  }

  SharedMemory& source_;
  std::uint64_t from_;
  std::vector<std::byte*> to_;
  SharedMemory* shared_to_;
  std::uint64_t shared_address_;
  Reduction reduction_;
  std::uint32_t mask_;
  std::vector<std::byte> taken_;
};

constexpr std::uint32_t kMultimem = 1;  // Form::variant of stores that want a multicast address

// [global], [shared], bytes{, policy}{, byte mask}
template <typename Operation, bool masked>
void store_bulk(PtxWarp& warp, const Instruction& i, Mask lanes) {
  Ordering& ordering = warp.ordering();
  for_lanes(lanes, [&](unsigned lane) {
    const int who = static_cast<int>(lane);
    const std::uint64_t to = global_place(warp, i.operands[0], lane);
    const std::uint64_t from = place(warp, i.operands[1], lane, MemorySpace::kShared);
    const std::uint64_t bytes = warp.value(i.operands[2], lane);
    check_bulk(to, from, bytes, who);
    if (bytes == 0) return;
    const GlobalMemory& global = warp.block().global();
    std::vector<std::byte*> destinations =
        i.form->variant == kMultimem ? global.copies(to, bytes, 16, true, who) : global.targets(to, bytes, 16, who);
    const SharedPlace source = shared_place(warp, from, MemorySpace::kShared, lane);
    const auto [reading, writing] = warp.bulk_groups().actors(lane, ordering);
    const std::uint64_t group = warp.bulk_groups().open(lane);
    source.block->shared().will_read(from, bytes, 16, ordering.of_work(reading, static_cast<Clock>(group), false), who);
    warp.count_bytes(*source.block, false, bytes);
    const AccessId writes = ordering.of_work(writing, static_cast<Clock>(group), false);
    warp.block().cluster().watch().use(to, bytes, true, {Operation::function != nullptr, Reach::kDevice, writes}, who);
    std::uint32_t mask = StoreBulk::kWhole;
    if (masked) mask = static_cast<std::uint32_t>(warp.value(i.operands.back(), lane));
    Issue issue;
    issue.operation = std::make_unique<StoreBulk>(source.block->shared(), from, bytes, std::move(destinations), nullptr,
                                                  0, Operation::function, mask);
    issue.queue = warp.bulk_groups().queue(lane);
    issue.group = group;
    // Not issue.blocks: the shared memory of a block that has ended stays until the engine has read it.
    warp.count_written(bytes);
    warp.block().cluster().async().issue(std::move(issue), warp.origin());
  });
}

// An H200 takes no such instruction in a launch without clusters, even within one block; one of a cluster of one block does.
void check_clusters(PtxWarp& warp, Mask lanes) {
  if (warp.block().shape().has_clusters) return;
  throw Violation{FaultKind::kIllegal,
                  "this instruction in a launch without clusters; one of a block is enough (cluster=1, .reqnctapercluster)",
                  __builtin_ctz(lanes)};
}

// [shared::cluster], [shared], bytes, [mbarrier]
template <typename Operation>
void send_bulk(PtxWarp& warp, const Instruction& i, Mask lanes) {
  check_clusters(warp, lanes);
  for_lanes(lanes, [&](unsigned lane) {
    const int who = static_cast<int>(lane);
    const std::uint64_t to = place(warp, i.operands[0], lane, MemorySpace::kCluster);
    const std::uint64_t from = place(warp, i.operands[1], lane, MemorySpace::kShared);
    const std::uint64_t bytes = warp.value(i.operands[2], lane);
    check_bulk(to, from, bytes, who);
    if (bytes == 0) return;
    const SharedPlace destination = shared_place(warp, to, MemorySpace::kCluster, lane);
    const SharedPlace source = shared_place(warp, from, MemorySpace::kShared, lane);
    const SharedPlace signalled =
        shared_place(warp, place(warp, i.operands[3], lane, MemorySpace::kCluster), MemorySpace::kCluster, lane);
    if (destination.block != signalled.block) {
      throw Violation{FaultKind::kAsync, "the mbarrier is in another block than the destination", who};
    }
    const Landing end =
        landing_on(warp, signalled, static_cast<std::int64_t>(bytes), who, Operation::function != nullptr);
    const std::byte* taken = source.block->shared().will_read(from, bytes, 16, end.access, who);
    if (Operation::function == nullptr) {
      destination.block->shared().will_be_sent(to, bytes, end.access, who, taken);
    } else {
      destination.block->shared().will_update(to, bytes, 16, end.access, who);
    }
    warp.count_bytes(*source.block, false, bytes);
    warp.count_bytes(*destination.block, true, bytes);
    Issue issue;
    issue.operation = std::make_unique<StoreBulk>(source.block->shared(), from, bytes, std::vector<std::byte*>{},
                                                  &destination.block->shared(), to, Operation::function,
                                                  StoreBulk::kWhole);
    issue.signals.push_back(end.signal);
    // Not the source, as with stores: the engine reads it even if its block has ended.
    issue.blocks = {destination.block};
    warp.block().cluster().async().issue(std::move(issue), warp.origin());
  });
}

void bulk_commit(PtxWarp& warp, const Instruction&, Mask lanes) { warp.bulk_groups().commit(lanes); }

template <bool only_read>
void bulk_wait(PtxWarp& warp, const Instruction& i, Mask lanes) {
  for_lanes(lanes, [&](unsigned lane) {
    const std::uint64_t count = warp.value(i.operands[0], lane);
    const std::uint64_t committed = warp.bulk_groups().open(lane) - 1;
    if (committed <= count || !warp.bulk_groups().is_used(lane)) return;
    const std::uint64_t group = committed - count;
    warp.block().cluster().async().finish_groups(warp.bulk_groups().queue(lane), group, only_read);
    const auto [reading, writing] = warp.bulk_groups().actors(lane, warp.ordering());
    warp.ordering().acquire(reading, static_cast<Clock>(group));
    if (!only_read) warp.ordering().acquire(writing, static_cast<Clock>(group));
  });
}

void bulk_prefetch(PtxWarp& warp, const Instruction& i, Mask lanes) {
  for_lanes(lanes, [&](unsigned lane) {
    const std::uint64_t from = warp.value(i.operands[0], lane);
    const std::uint64_t bytes = warp.value(i.operands[1], lane);
    check_bulk(0, from, bytes, static_cast<int>(lane));
    if (bytes > 0) warp.block().global_for_prefetch().range(from, bytes, 16, false, static_cast<int>(lane));
  });
}

// ---- st.async and red.async: each lane's value to one block, which signals its mbarrier

class StoreAsync : public AsyncOperation {
 public:
  struct One {
    SharedMemory* shared;
    std::uint64_t address;
    unsigned bytes;
    std::uint64_t values[4];
  };
  StoreAsync(std::vector<One> all, Reduction reduction) : all_(std::move(all)), reduction_(reduction) {}
  void write() override {
    for (const One& one : all_) {
      std::byte* to = one.shared->bytes(one.address, one.bytes);
      const auto* from = reinterpret_cast<const std::byte*>(one.values);
      if (reduction_ != nullptr) {
        reduction_(to, from, one.bytes);
      } else {
        std::memcpy(to, from, one.bytes);
        one.shared->mark_written(one.address, one.bytes);
      }
    }
  }

 private:
  std::vector<One> all_;
  Reduction reduction_;
};

// [shared::cluster], value, [mbarrier]
template <typename Operation>
void store_async(PtxWarp& warp, const Instruction& i, Mask lanes) {
  check_clusters(warp, lanes);
  constexpr bool kReduces = Operation::function != nullptr;
  const unsigned element = i.form->element, count = i.form->count;
  std::vector<StoreAsync::One> all;
  Issue issue;
  AccessId access = 0;
  for_lanes(lanes, [&](unsigned lane) {
    const int who = static_cast<int>(lane);
    const SharedPlace destination =
        shared_place(warp, place(warp, i.operands[0], lane, MemorySpace::kCluster), MemorySpace::kCluster, lane);
    const SharedPlace signalled = shared_place(warp, place(warp, i.operands[1 + count], lane, MemorySpace::kCluster),
                                               MemorySpace::kCluster, lane);
    if (destination.block != signalled.block) {
      throw Violation{FaultKind::kAsync, "the mbarrier is in another block than the destination", who};
    }
    const unsigned bytes = element * count;
    if (issue.signals.empty() || issue.signals.back().barrier->address != signalled.address) {
      Landing end = landing_on(warp, signalled, 0, who, kReduces);
      access = end.access;
      issue.signals.push_back(std::move(end.signal));
      issue.blocks.push_back(destination.block);
    }
    issue.signals.back().bytes += bytes;
    SharedMemory& memory = destination.block->shared();
    if (kReduces) memory.will_update(destination.address, bytes, bytes, access, who);
    else memory.will_write(destination.address, bytes, bytes, access, who);
    warp.count_bytes(*destination.block, true, bytes);
    StoreAsync::One one{&destination.block->shared(), destination.address, bytes, {}};
    for (unsigned at = 0; at < count; ++at) {
      const std::uint64_t value = warp.value(i.operands[1 + at], lane);
      std::memcpy(reinterpret_cast<std::byte*>(one.values) + at * element, &value, element);
    }
    all.push_back(one);
  });
  issue.operation = std::make_unique<StoreAsync>(std::move(all), Operation::function);
  warp.block().cluster().async().issue(std::move(issue), warp.origin());
}

}  // namespace

void add_async_forms(Forms& forms) {
  forms.push_back({"cp.async.shared.global", "S G 4 4? p? 8?", cp_async, MemorySpace::kShared});
  forms.push_back({"cp.async.commit_group", "", cp_async_commit});
  forms.push_back({"cp.async.wait_group", "4", cp_async_wait});
  forms.push_back({"cp.async.wait_all", "", cp_async_wait_all});
  for (const auto& [space, memory] : {std::pair<std::string, MemorySpace>{"", MemorySpace::kGeneric},
                                      {".shared", MemorySpace::kShared}}) {
    forms.push_back({"cp.async.mbarrier.arrive" + space + ".b64", "A", cp_async_arrive<false>, memory});
    forms.push_back({"cp.async.mbarrier.arrive.noinc" + space + ".b64", "A", cp_async_arrive<true>, memory});
  }
  const std::string landed = ".mbarrier::complete_tx::bytes";
  forms.push_back(
      {"cp.async.bulk.shared::cluster.global" + landed, "S G 4 S 8?", load_bulk<false>, MemorySpace::kCluster});
  forms.push_back({"cp.async.bulk.shared.global" + landed, "S G 4 S 8?", load_bulk<false>, MemorySpace::kShared});
  forms.push_back({"cp.async.bulk.shared::cluster.global" + landed + ".multicast::cluster", "S G 4 S 2 8?",
                   load_bulk<true>, MemorySpace::kCluster});
  forms.push_back(
      {"cp.async.bulk.shared::cluster.shared" + landed, "S S 4 S", send_bulk<NoReduction>, MemorySpace::kCluster});
  const std::string stored = "cp.async.bulk.global.shared.bulk_group";
  forms.push_back({stored, "G S 4 8?", store_bulk<NoReduction, false>, MemorySpace::kShared});
  forms.push_back({stored + ".cp_mask", "G S 4 8? 2", store_bulk<NoReduction, true>, MemorySpace::kShared});
  const std::string sent = "multimem.cp.async.bulk.global.shared.bulk_group";
  const auto add_multimem = [&](const std::string& opcode, const char* operands, Handler handler) {
    forms.push_back({opcode, operands, handler, MemorySpace::kShared});
    forms.back().variant = kMultimem;
  };
  for (const char* whole : {"", ".b128"}) add_multimem(sent + whole, "G S 4", store_bulk<NoReduction, false>);
  add_multimem(sent + ".cp_mask", "G S 4 2", store_bulk<NoReduction, true>);
  forms.push_back({"cp.async.bulk.commit_group", "", bulk_commit});
  forms.push_back({"cp.async.bulk.wait_group", "4", bulk_wait<false>});
  forms.push_back({"cp.async.bulk.wait_group.read", "4", bulk_wait<true>});
  forms.push_back({"cp.async.bulk.prefetch.L2.global", "A 4 8?", bulk_prefetch, MemorySpace::kGlobal});
  for_reductions([&](const std::string& name, auto operation, unsigned element, bool shared, bool global) {
    using Operation = decltype(operation);
    if (shared) {
      forms.push_back({"cp.reduce.async.bulk.shared::cluster.shared" + landed + "." + name, "S S 4 S",
                       send_bulk<Operation>, MemorySpace::kCluster});
      for (const char* space : {".shared::cluster", ""}) {  // the same, and left out
        forms.push_back({std::string("red.async") + space + landed + "." + name, "S v S", store_async<Operation>,
                         MemorySpace::kCluster, static_cast<std::uint8_t>(element)});
      }
    }
    if (global) {
      forms.push_back({"cp.reduce.async.bulk.global.shared.bulk_group." + name, "G S 4 8?",
                       store_bulk<Operation, false>, MemorySpace::kShared});
      add_multimem("multimem.cp.reduce.async.bulk.global.shared.bulk_group." + name, "G S 4",
                   store_bulk<Operation, false>);
    }
  });
  for (const std::string type : {"b32", "u32", "s32", "f32", "b64", "u64", "s64", "f64"}) {
    const auto element = static_cast<std::uint8_t>(std::stoi(type.substr(1)) / 8);
    for (const unsigned count : {1U, 2U, 4U}) {
      if (element * count > 16) continue;
      const std::string vector = count == 1 ? "." : ".v" + std::to_string(count) + ".";
      for (const char* space : {".shared::cluster", ""}) {
        forms.push_back({std::string("st.async") + space + landed + vector + type, "S v S",
                         store_async<NoReduction>, MemorySpace::kCluster, element,
                         static_cast<std::uint8_t>(count)});
      }
    }
  }
}

}  // namespace msa_ops::emulator::ptx

// Who has seen what: vector clocks of everything that acts on the shared memory of a cluster.
//
// Actors are the warps, the queues of asynchronous work that each warp waits for itself, and the mbarriers, on which
// other asynchronous work ends. What an actor does between two of its releases has one clock value. An access A is
// ordered before an access of warp W if W has seen A's actor at A's clock or later.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "elsewhere.hpp"
#include "fault.hpp"
#include "same_values.hpp"

namespace msa_ops::emulator {

using AccessId = std::uint32_t;  // 0: none

// What somebody has seen: by any order, and by an order with a proxy fence on the way, for shared and for global memory.
struct Knowledge {
  std::vector<Clock> seen;
  std::vector<Clock> fenced;
  std::vector<Clock> fenced_global;
  SequentialOrder sequential{};
  Elsewhere::Pointer elsewhere{};  // and in other clusters

  void clear();
  void join(const Knowledge& other);
};

class Ordering {
 public:
  // The work of one warp that is waited for by groups.
  enum class Queue { kCopies = 1, kBulk = 2, kMatrix = 3, kTensorLoads = 4, kTensorStores = 5, kBulkWrites = 6 };

  explicit Ordering(unsigned warps) : warps_(warps), states_(warps) {}
  // `cluster`: its number among all whose accesses of global memory are compared.
  void reset(std::uint32_t cluster = 0);

  // ---- the warp whose instructions are being executed; `pc` is where it keeps its present instruction
  void set_current(unsigned warp, const std::uint32_t* pc) {
    warp_ = warp;
    pc_ = pc;
  }
  unsigned current() const { return warp_; }
  std::uint32_t pc() const { return pc_ != nullptr ? *pc_ : 0; }

  // ---- order that the present warp makes
  void release(Knowledge& into);                    // hands on what it has seen and done
  void acquire(const Knowledge& from) { acquire(warp_, from); }
  void acquire(unsigned warp, const Knowledge& from);
  void acquire(Actor actor, Clock clock);           // it has waited for that
  // Of the memory model; for shared memory any scope will do.
  enum class Fence : std::uint8_t { kBoth, kAcquire, kRelease, kSequential };
  void fence(Reach scope, Fence kind = Fence::kBoth);
  // Between the generic and the asynchronous proxy.
  void fence_proxy(bool shared, bool global);
  // A strong write publishes what came before a fence, or before itself if it is a release; a strong read takes that
  // up at a fence, or at once if it is an acquire.
  void publish(Knowledge& location, bool is_release);
  void take_up(const Knowledge& location, bool is_acquire);

  // ---- the same with other clusters, through global memory
  std::uint32_t cluster() const { return cluster_; }
  // What the present warp has seen and done.
  Elsewhere::Pointer known_to_all();
  // What a strong write of it hands on that is no release, at a scope: what came before a fence of at least that one.
  const Elsewhere::Pointer& before_fence(Reach scope) const { return states_[warp_].before_fence[index(scope)]; }
  // What any strong write of it tells whoever reads it, for the reader's next fence.sc (SequentialOrder); null if nothing.
  Elsewhere::Pointer telling(bool of_system) const;
  // It takes that up at once, or at a fence of at least that scope.
  void learn(const Elsewhere::Pointer& from);
  void learn_at_fence(const Elsewhere::Pointer& from, Reach scope);
  void tick() { tick(states_[warp_]); }
  bool knows(std::uint32_t cluster, Actor actor, Clock clock) const {
    if (cluster == cluster_) return seen(actor, clock);
    const auto* there = elsewhere(cluster);
    return there != nullptr && at(there->seen, actor) >= clock;
  }
  bool knows_fenced(std::uint32_t cluster, Actor actor, Clock clock) const {
    if (cluster == cluster_) return at(states_[warp_].known.fenced_global, actor) >= clock;
    const auto* there = elsewhere(cluster);
    return there != nullptr && at(there->fenced, actor) >= clock;
  }

  Actor add_actor();  // until reset
  Actor actor(unsigned warp, Queue queue) const { return warp * kActorsAWarp + static_cast<Actor>(queue); }
  Actor actor(unsigned warp) const { return warp * kActorsAWarp; }
  bool fenced(Actor actor, Clock clock) const { return at(states_[warp_].known.fenced, actor) >= clock; }
  bool seen(Actor actor, Clock clock) const {
    return actor == warp_ * kActorsAWarp || at(states_[warp_].known.seen, actor) >= clock;
  }
  bool is_mbarrier(Actor actor) const { return actor >= warps_ * kActorsAWarp; }
  // Whether a warp has seen that, or has read what tells it, be it without a fence yet.
  bool has_heard(unsigned warp, Actor actor, Clock clock) const {
    const State& state = states_[warp];
    return at(state.known.seen, actor) >= clock || at(state.from_reads.seen, actor) >= clock;
  }
  // That all blocks of the cluster run, which the present warp finds at their barrier, in whatever order.
  void note_start_of_all() { raise(states_[warp_].known.seen, start_, 1); }
  // Whether the present warp knows that a block with these warps runs: by that, or by anything that one of them has done.
  bool knows_start_of(unsigned first_warp, unsigned num_warps) const {
    if (has_heard(warp_, start_, 1)) return true;
    for (unsigned warp = first_warp; warp < first_warp + num_warps; ++warp) {
      if (has_heard(warp_, warp * kActorsAWarp, 1)) return true;
    }
    return false;
  }
  bool has_fenced() const { return states_[warp_].fence_used; }  // the present warp, by fence()
  Clock clock() const { return states_[warp_].clock; }

  // ---- accesses
  // What the present warp does now in the generic proxy; `strong`: atomics, volatile and relaxed accesses.
  AccessId own(bool strong) {
    const AccessId id = states_[warp_].own[strong ? 1 : 0];
    return id != 0 ? id : make_own(strong);
  }
  // An access of asynchronous work that ends with `clock` of `actor`. It is in the generic proxy for cp.async, and strong
  // for reductions.
  AccessId of_work(Actor actor, Clock clock, bool generic_proxy, bool strong = false);
  AccessId of_mbarrier();  // marks bytes that are an mbarrier

  // Whether the present warp's access, in the asynchronous proxy or not, may follow all of the accesses `id`.
  enum class Verdict { kOrdered, kRace, kUnfenced, kMbarrier };
  Verdict judge(AccessId id, bool strong, bool asynchronous, bool earlier_writes) const;
  // The same for what the present warp reads of writes that left the same value: one of them is enough.
  Verdict judge_value(AccessId writes, bool strong, bool asynchronous) const;
  // Whether all are weak accesses of warps through the generic proxy.
  bool plain(AccessId id) const;
  // Whether all that the present warp has not seen of them is asynchronous work of the instruction that it executes.
  bool of_same_instruction(AccessId id) const;
  // The set of accesses `before` and `one`, without those that `one` follows anyway.
  AccessId add(AccessId before, AccessId one);

  struct Record {
    Actor actor = 0;
    Clock clock = 0;
    AccessId next = 0;  // more accesses of the same set
    std::uint32_t pc = 0;
    unsigned warp = 0;  // that did it or asked for it
    bool strong = false;
    bool asynchronous = false;  // proxy
    bool mbarrier = false;
  };
  const Record& record(AccessId id) const { return records_[id]; }
  // The record of the set that the present warp has not seen, for messages.
  const Record& culprit(AccessId id, bool strong) const;

  SameValues& same_values() { return same_values_; }

  // Records are forgotten when there are many: `live[id]` on entry says which are in use, on return their new ids.
  bool crowded() const { return records_.size() > kManyRecords; }
  std::size_t num_records() const { return records_.size(); }
  void compact(std::vector<AccessId>& live);

 private:
  static constexpr unsigned kActorsAWarp = 7;
  static constexpr std::size_t kManyRecords = 1U << 18;
  struct State {
    Clock clock = 1;
    Knowledge known;
    Knowledge at_fence;   // what a strong write hands on
    Knowledge from_reads; // what the next fence takes up
    std::array<AccessId, 2> own{};
    bool fence_used = false;
    std::array<Elsewhere::Pointer, 4> before_fence, heard;  // by scope
  };
  static std::size_t index(Reach scope) { return static_cast<std::size_t>(scope); }
  const Elsewhere::Cluster* elsewhere(std::uint32_t cluster) const {
    const Elsewhere::Pointer& all = states_[warp_].known.elsewhere;
    return all != nullptr ? all->find(cluster) : nullptr;
  }
  static void raise(std::vector<Clock>& clocks, Actor actor, Clock clock);
  AccessId make_own(bool strong);
  AccessId push(const Record& record);
  void note_own_clock(State& state, unsigned warp);
  void tick(State& state);

  unsigned warps_;
  std::uint32_t cluster_ = 0;
  std::vector<State> states_;
  std::vector<Record> records_{Record{}};
  Actor actors_ = 0;
  Actor start_ = 0;  // whose only deed is that all blocks run
  unsigned warp_ = 0;
  const std::uint32_t* pc_ = nullptr;
  struct Memo {
    AccessId before = 0, one = 0, result = 0;
  };
  std::array<Memo, 256> memo_{};
  AccessId mbarrier_ = 0;
  SameValues same_values_;
};

}  // namespace msa_ops::emulator

#include "ordering.hpp"

#include <algorithm>

namespace msa_ops::emulator {
void Knowledge::clear() {
  seen.clear();
  fenced.clear();
  fenced_global.clear();
  sequential = {};
  elsewhere.reset();
}

void Knowledge::join(const Knowledge& other) {
  join_clocks(seen, other.seen);
  join_clocks(fenced, other.fenced);
  join_clocks(fenced_global, other.fenced_global);
  sequential.join(other.sequential);
  if (elsewhere != other.elsewhere) elsewhere = Elsewhere::join(elsewhere, other.elsewhere);
}

void Ordering::reset(std::uint32_t cluster) {
  cluster_ = cluster;
  for (State& state : states_) {
    state.clock = 1;
    state.known.clear();
    state.at_fence.clear();
    state.from_reads.clear();
    state.own = {};
    state.fence_used = false;
    state.before_fence = {};
    state.heard = {};
  }
  records_.assign(1, Record{});
  memo_.fill({});
  actors_ = warps_ * kActorsAWarp;
  start_ = add_actor();
  mbarrier_ = 0;
  same_values_.forget();
}

void Ordering::raise(std::vector<Clock>& clocks, Actor actor, Clock clock) {
  if (clocks.size() <= actor) clocks.resize(actor + 1, 0);
  clocks[actor] = std::max(clocks[actor], clock);
}

void Ordering::note_own_clock(State& state, unsigned warp) {
  raise(state.known.seen, warp * kActorsAWarp, state.clock);
}

void Ordering::tick(State& state) {
  ++state.clock;
  state.own = {};
}

void Ordering::release(Knowledge& into) {
  State& state = states_[warp_];
  note_own_clock(state, warp_);
  into.join(state.known);
  tick(state);
}

void Ordering::acquire(unsigned warp, const Knowledge& from) { states_[warp].known.join(from); }

void Ordering::acquire(Actor actor, Clock clock) { raise(states_[warp_].known.seen, actor, clock); }

void Ordering::fence(Reach scope, Fence kind) {
  State& state = states_[warp_];
  if (kind != Fence::kRelease) {
    state.known.join(state.from_reads);
    for (std::size_t i = 0; i <= index(scope); ++i) {
      if (state.heard[i] != nullptr) learn(state.heard[i]);
    }
  }
  note_own_clock(state, warp_);
  if (kind == Fence::kSequential && scope >= Reach::kDevice) {
    const bool of_system = scope == Reach::kSystem;
    state.known.sequential.fence(state.known.seen, of_system);
    state.known.elsewhere = Elsewhere::fence_sequential(state.known.elsewhere, of_system);
  }
  if (kind != Fence::kAcquire) {
    state.at_fence = state.known;
    state.fence_used = true;
    const Elsewhere::Pointer all = cluster_ != 0 ? known_to_all() : nullptr;
    for (std::size_t i = 0; i <= index(scope); ++i) state.before_fence[i] = all;
  }
  tick(state);
}

Elsewhere::Pointer Ordering::telling(bool of_system) const {
  const Knowledge& known = states_[warp_].known;
  Elsewhere::Pointer all = Elsewhere::telling(known.elsewhere, of_system);
  if ((of_system ? known.sequential.before_of_system : known.sequential.before).empty()) return all;
  auto own = std::make_shared<Elsewhere::Cluster>(Elsewhere::Cluster{cluster_, {}, {}, known.sequential.telling(of_system)});
  return Elsewhere::join(all, Elsewhere::of(std::move(own)));
}

void Ordering::fence_proxy(bool shared, bool global) {
  State& state = states_[warp_];
  note_own_clock(state, warp_);
  if (shared) join_clocks(state.known.fenced, state.known.seen);
  if (global) {
    join_clocks(state.known.fenced_global, state.known.seen);
    state.known.elsewhere = Elsewhere::fence(state.known.elsewhere);
  }
  tick(state);
}

Elsewhere::Pointer Ordering::known_to_all() {
  State& state = states_[warp_];
  note_own_clock(state, warp_);
  const Knowledge& known = state.known;
  auto own = std::make_shared<Elsewhere::Cluster>(
      Elsewhere::Cluster{cluster_, known.seen, known.fenced_global, known.sequential});
  return Elsewhere::join(known.elsewhere, Elsewhere::of(std::move(own)));
}

void Ordering::learn(const Elsewhere::Pointer& from) {
  Knowledge& known = states_[warp_].known;
  known.elsewhere = Elsewhere::join(known.elsewhere, from);
  if (const auto* own = from->find(cluster_)) {
    join_clocks(known.seen, own->seen);
    join_clocks(known.fenced_global, own->fenced);
    known.sequential.join(own->sequential);
  }
}

void Ordering::learn_at_fence(const Elsewhere::Pointer& from, Reach scope) {
  Elsewhere::Pointer& heard = states_[warp_].heard[index(scope)];
  heard = Elsewhere::join(heard, from);
}

void Ordering::publish(Knowledge& location, bool is_release) {
  State& state = states_[warp_];
  if (is_release) release(location);
  else if (state.fence_used) location.join(state.at_fence);
}

void Ordering::take_up(const Knowledge& location, bool is_acquire) {
  State& state = states_[warp_];
  (is_acquire ? state.known : state.from_reads).join(location);
}

Actor Ordering::add_actor() { return actors_++; }

AccessId Ordering::push(const Record& record) {
  records_.push_back(record);
  return static_cast<AccessId>(records_.size() - 1);
}

AccessId Ordering::make_own(bool strong) {
  State& state = states_[warp_];
  Record made;
  made.actor = warp_ * kActorsAWarp;
  made.clock = state.clock;
  made.warp = warp_;
  made.strong = strong;
  made.pc = pc();
  return state.own[strong ? 1 : 0] = push(made);
}

AccessId Ordering::of_work(Actor actor, Clock clock, bool generic_proxy, bool strong) {
  Record made;
  made.actor = actor;
  made.clock = clock;
  made.warp = warp_;
  made.asynchronous = !generic_proxy;
  made.strong = strong;
  made.pc = pc();
  return push(made);
}

AccessId Ordering::of_mbarrier() {
  if (mbarrier_ == 0) {
    Record made;
    made.mbarrier = true;
    mbarrier_ = push(made);
  }
  return mbarrier_;
}

Ordering::Verdict Ordering::judge(AccessId id, bool strong, bool asynchronous, bool earlier_writes) const {
  for (; id != 0; id = records_[id].next) {
    const Record& one = records_[id];
    if (one.mbarrier) return Verdict::kMbarrier;
    if (one.strong && strong && one.asynchronous == asynchronous) continue;
    if (!seen(one.actor, one.clock)) return Verdict::kRace;
    if (asynchronous && earlier_writes && !one.asynchronous && !fenced(one.actor, one.clock)) return Verdict::kUnfenced;
  }
  return Verdict::kOrdered;
}

Ordering::Verdict Ordering::judge_value(AccessId writes, bool strong, bool asynchronous) const {
  const Verdict all = judge(writes, strong, asynchronous, true);
  if (all == Verdict::kMbarrier || records_[writes].next == 0 || !plain(writes)) return all;
  for (AccessId id = writes; id != 0; id = records_[id].next) {
    const Record& one = records_[id];
    if (seen(one.actor, one.clock) && (!asynchronous || fenced(one.actor, one.clock))) return Verdict::kOrdered;
  }
  return all;
}

bool Ordering::plain(AccessId id) const {
  for (; id != 0; id = records_[id].next) {
    const Record& one = records_[id];
    if (one.strong || one.asynchronous || one.mbarrier) return false;
  }
  return true;
}

bool Ordering::of_same_instruction(AccessId id) const {
  for (; id != 0; id = records_[id].next) {
    const Record& one = records_[id];
    if (!seen(one.actor, one.clock) && (!one.asynchronous || one.pc != pc())) return false;
  }
  return true;
}

const Ordering::Record& Ordering::culprit(AccessId id, bool strong) const {
  for (AccessId at = id; at != 0; at = records_[at].next) {
    const Record& one = records_[at];
    if (!(one.strong && strong) && !seen(one.actor, one.clock)) return one;
  }
  return records_[id];
}

AccessId Ordering::add(AccessId before, AccessId one) {
  if (before == 0 || before == one) return one;
  Memo& memo = memo_[(before * 31 + one) % memo_.size()];
  if (memo.before == before && memo.one == one) return memo.result;
  AccessId list = 0;
  bool is_in = false;
  for (AccessId at = before; at != 0; at = records_[at].next) {
    const Record& old = records_[at];
    const Record& added = records_[one];
    if (old.actor == added.actor && old.clock == added.clock && old.strong == added.strong) is_in = true;
    else if (seen(old.actor, old.clock)) continue;  // whoever follows this access follows that one too
    Record copy = old;
    copy.next = list;
    list = push(copy);
  }
  AccessId result = list;
  if (!is_in) {
    if (list == 0) {
      result = one;
    } else {
      Record copy = records_[one];
      copy.next = list;
      result = push(copy);
    }
  }
  memo = {before, one, result};
  return result;
}

void Ordering::compact(std::vector<AccessId>& live) {
  live.resize(records_.size(), 0);
  for (std::size_t id = records_.size(); id-- > 1;) {
    if (live[id] != 0 && records_[id].next != 0) live[records_[id].next] = 1;
  }
  std::vector<Record> kept{Record{}};
  for (std::size_t id = 1; id < records_.size(); ++id) {
    if (live[id] == 0) continue;
    Record record = records_[id];
    record.next = record.next != 0 ? live[record.next] : 0;
    kept.push_back(record);
    live[id] = static_cast<AccessId>(kept.size() - 1);
  }
  live[0] = 0;
  mbarrier_ = mbarrier_ != 0 ? live[mbarrier_] : 0;
  records_ = std::move(kept);
  memo_.fill({});
  for (State& state : states_) state.own = {};
}

}  // namespace msa_ops::emulator

// Endless loops of a warp: it comes back to a state in which it was before, and nothing that it shares has changed.
//
// Brent's way: one earlier state is kept, taken anew after 1, 2, 4, 8 ... ways back. Only warps that have long seen no
// change are watched. What a warp that has not used global memory shares is that of its cluster.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "../device/progress.hpp"
#include "instruction.hpp"

namespace msa_ops::emulator::ptx {

class LoopWatch {
 public:
  // Everything on which the warp's next steps depend, but for what it shares and for its local memory, whose changes count
  // as changes of the cluster.
  struct State {
    const std::vector<unsigned char>& registers;
    const std::vector<Mask>& defined;
    const std::vector<std::uint32_t>& control;  // paths, and what belongs to the warp as a whole
  };

  void reset() { *this = {}; }
  bool is_on() const { return is_on_; }
  // With the changes of the cluster, and the uses of global memory by its block, so far; `soon`: watched after few turns.
  void begin_turn(std::uint64_t changes, std::uint64_t global_uses, bool soon) {
    is_soon_ = soon;
    if (changes != seen_) {
      seen_ = changes;
      quiet_ = 0;
      is_on_ = false;
    }
    counted_ = global_uses;
  }
  void end_turn(std::uint64_t executed, std::uint64_t global_uses) {
    count_uses(global_uses);
    quiet_ += executed + kTurn;
    is_on_ = is_on_ || quiet_ >= (is_soon_ ? kQuietSoon : kQuiet);
  }
  // Nothing but time lets the warp go on, so it may come back soon.
  void expect() { is_on_ = true; }
  // The lanes of a path that gives way to another one: it has had its chance.
  void note_ran(Mask lanes) { ran_ |= lanes; }

  struct Way {
    std::uint32_t next, from;  // instructions: it has gone back to the first
    Mask runnable, ran;        // lanes that do not wait for others of the warp, and those of the present path
    std::uint64_t global_uses;
    bool varies;               // reads of global memory find one thing or another
  };
  // The warp has gone back; state() gives a State.
  template <typename MakeState>
  void went_back(const Changes& now, const Way& way, MakeState state) {
    count_uses(way.global_uses);
    const bool used = own_uses_ != kept_uses_;
    if (kept_at_.cluster == now.cluster && (!used || (kept_at_.launch == now.launch && !way.varies))) {
      if (way.next == next_ && (way.runnable & ~(ran_ | way.ran)) == 0 && is_same(state())) {
        loops_at_ = now;
        loops_ = used ? Rest::kInLaunch : Rest::kInCluster;
        from_ = way.from;
        return;
      }
    } else {  // nothing is kept while changes go on
      until_ = kFirst;
      kept_at_ = {};
      if (last_.cluster != now.cluster || (last_.launch != now.launch && own_uses_ != last_uses_)) ways_ = 0;
    }
    last_ = now;
    last_uses_ = own_uses_;
    if (++ways_ < until_) return;
    until_ = 2 * ways_;
    keep(now, way.next, state());
  }
  // In a turn every path of the warp asked for something of its cluster, and none could go on.
  void note_idle(std::uint64_t changes) { idle_at_ = changes; }
  Rest rest(const Changes& now) const {
    if (idle_at_ == now.cluster) return Rest::kInCluster;
    return loops(now) ? loops_ : Rest::kNone;
  }
  bool loops(const Changes& now) const {
    return loops_at_.cluster == now.cluster && (loops_ == Rest::kInCluster || loops_at_.launch == now.launch);
  }
  std::uint32_t first() const { return next_; }  // instruction, of the loop
  std::uint32_t last() const { return from_; }

 private:
  bool is_same(const State& now) const {
    return now.registers == registers_ && now.control == control_ && now.defined == defined_;
  }
  void count_uses(std::uint64_t global_uses) {
    own_uses_ += global_uses - counted_;
    counted_ = global_uses;
  }
  void keep(const Changes& now, std::uint32_t next, const State& state) {
    kept_at_ = now;
    next_ = next;
    ran_ = 0;
    kept_uses_ = own_uses_;
    control_ = state.control;
    registers_ = state.registers;
    defined_ = state.defined;
  }

  static constexpr std::uint64_t kQuiet = 10'000, kQuietSoon = 512;  // instructions without a change
  static constexpr std::uint64_t kTurn = 32;       // what a turn counts for, however short
  static constexpr std::uint64_t kFirst = 4;       // ways back without a change of the launch, before a state is kept
  std::uint64_t seen_ = 0, quiet_ = 0;
  bool is_on_ = false, is_soon_ = false;
  std::uint64_t counted_ = 0, own_uses_ = 0, kept_uses_ = 0, last_uses_ = 0;  // of global memory
  Changes kept_at_, last_, loops_at_;
  Rest loops_ = Rest::kNone;
  std::uint64_t idle_at_ = kNever;
  std::uint64_t ways_ = 0, until_ = kFirst;
  std::uint32_t next_ = 0, from_ = 0;
  Mask ran_ = 0;
  std::vector<std::uint32_t> control_;
  std::vector<unsigned char> registers_;
  std::vector<Mask> defined_;
};

}  // namespace msa_ops::emulator::ptx

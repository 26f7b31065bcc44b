// What other blocks of a cluster did with the shared memory of one block, which has to be over when that block ends.
//
// Whether a use comes before the end by luck is of no interest: one of the block's warps must know of it (Ordering).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "ordering.hpp"

namespace msa_ops::emulator {

class RemoteUse {
 public:
  // Of the block with these warps of the cluster; nothing was used yet.
  void start(const Ordering& ordering, unsigned first_warp, unsigned num_warps);
  bool is_remote(unsigned warp) const { return warp - first_warp_ >= num_warps_; }

  unsigned block() const { return ordering_->current() / num_warps_; }  // of the present warp, in the cluster

  // The present warp, of another block, reads or writes now.
  void note() { note({ordering_->actor(ordering_->current()), 0}, own(0)); }
  // The present warp, of another block, changes an mbarrier in its present phase: who has seen that phase complete, in
  // whatever order, knows that it has happened.
  void note_arrival(Actor mbarrier, std::uint64_t phase) {
    note({ordering_->actor(ordering_->current()), mbarrier}, own(phase + 1));
  }
  // Asynchronous work that ends as Ordering::of_work said, of another block or on an mbarrier.
  void note_work(AccessId access);
  // Work of the present warp, of another block, arrives at an mbarrier when `clock` of its queue has ended.
  void note_work_arrival(Actor queue, Clock clock) {
    note({queue, 0}, {clock, 0, ordering_->current(), ordering_->pc()});
  }

  struct Use {
    Clock clock = 0;          // of the actor
    std::uint64_t phase = 0;  // of the mbarrier, complete; 0: seeing it does not help
    unsigned warp = 0;        // that did it or asked for it
    std::uint32_t pc = 0;
  };
  // One that no warp of the block knows of.
  std::optional<Use> unknown() const;

 private:
  Use own(std::uint64_t phase) const { return {ordering_->clock(), phase, ordering_->current(), ordering_->pc()}; }
  using Key = std::pair<Actor, Actor>;  // who, and at which mbarrier; 0: none
  void note(Key key, const Use& use);

  const Ordering* ordering_ = nullptr;
  unsigned first_warp_ = 0, num_warps_ = 0;
  std::map<Key, Use> uses_;  // the last of each
  Key last_key_{};
  Use* last_ = nullptr;
};

}  // namespace msa_ops::emulator

// The numbered barriers of a thread block, counted in whole warps.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "ordering.hpp"

namespace msa_ops::emulator {

class Barriers {
 public:
  static constexpr unsigned kCount = 16;

  // `first_warp`: the number of the block's first warp in the ordering of its cluster.
  void reset(unsigned num_warps, Ordering& ordering, unsigned first_warp);

  // A warp arrives, the one that runs; `expected` is the number of warps that complete the barrier, 0 for all that
  // have not exited. Violation for a number that does not exist or that disagrees with earlier arrivals.
  // Also for a reduction where others of the same completion make another one, or none: PTX leaves that open.
  enum class Reduce { kNone, kCount, kAnd, kOr };
  void arrive(unsigned barrier, unsigned warp, unsigned expected, bool waits, Reduce reduce = Reduce::kNone);
  // The same, and every warp that waits gets the sum, the conjunction and the disjunction of all arrivals' votes.
  struct Votes {
    unsigned count = 0;
    bool all = true, any = false;
  };
  void arrive_with(unsigned barrier, unsigned warp, unsigned expected, Reduce reduce, const Votes& votes);
  const Votes& votes(unsigned warp) const { return results_[warp]; }
  void exit();  // a warp has left for good

  bool waiting(unsigned warp) const { return waits_for_[warp] >= 0; }
  std::string describe(unsigned warp) const;  // what a waiting warp waits for

 private:
  struct State {
    unsigned arrived = 0;
    unsigned expected = 0;
    Reduce reduce = Reduce::kNone;
    Knowledge knowledge;
    Votes votes;
  };
  void complete_if_full(unsigned barrier);

  std::array<State, kCount> states_{};
  std::vector<int> waits_for_;  // barrier of each warp, or -1
  std::vector<Votes> results_;
  unsigned live_ = 0;
  Ordering* ordering_ = nullptr;
  unsigned first_warp_ = 0;
};

// The barrier of a cluster. Every thread arrives once and waits once, in turn.
class ClusterBarrier {
 public:
  void reset(unsigned warps, Ordering& ordering);

  void arrive(unsigned warp, std::uint32_t lanes, std::uint32_t live, bool is_release);
  // Whether the phase that these lanes arrived at is complete; then they have waited.
  bool passed(unsigned warp, std::uint32_t lanes, bool is_acquire);
  void exit(unsigned warp);  // counts as having arrived from now on
  bool open(unsigned warp) const { return warps_[warp].phase < phase_; }
  std::string describe() const;

 private:
  struct Warp {
    std::uint32_t arrived = 0;  // lanes
    std::uint32_t wanted = 0;   // live lanes, once one has arrived
    std::uint32_t waited = 0;
    std::uint64_t phase = 0;    // of the last arrival
    bool exited = false;
  };
  void complete_if_full();

  std::vector<Warp> warps_;
  std::uint64_t phase_ = 0;  // that is being gathered
  Knowledge gathered_, complete_;
  Ordering* ordering_ = nullptr;
};

}  // namespace msa_ops::emulator

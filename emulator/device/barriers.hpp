// The numbered barriers of a thread block, counted in whole warps.
#pragma once

#include <array>
#include <string>
#include <vector>

namespace msa_ops::emulator {

class Barriers {
 public:
  static constexpr unsigned kCount = 16;

  void reset(unsigned num_warps);

  // A warp arrives; `expected` is the number of warps that complete the barrier, 0 for all that have not exited.
  // Violation for a number that does not exist or that disagrees with earlier arrivals.
  void arrive(unsigned barrier, unsigned warp, unsigned expected, bool waits);
  void exit();  // a warp has left for good

  bool waiting(unsigned warp) const { return waits_for_[warp] >= 0; }
  std::string describe(unsigned warp) const;  // what a waiting warp waits for

 private:
  struct State {
    unsigned arrived = 0;
    unsigned expected = 0;
  };
  void complete_if_full(unsigned barrier);

  std::array<State, kCount> states_{};
  std::vector<int> waits_for_;  // barrier of each warp, or -1
  unsigned live_ = 0;
};

}  // namespace msa_ops::emulator

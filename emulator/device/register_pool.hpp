// The registers of a block, which its warps give back to a pool and take out of it again.
#pragma once

#include <vector>

namespace msa_ops::emulator {

class RegisterPool {
 public:
  static constexpr unsigned kGroupWarps = 4;  // that change their registers together
  static constexpr unsigned kLeast = 24, kMost = 256, kStep = 8;

  // Every warp has `registers` a thread at first, and the pool none; 0: the block cannot change them.
  void start(unsigned num_warps, unsigned registers);

  // A warp wants `count` registers a thread, more or fewer than it has. False if the
  // pool has too few: then nothing has changed, and it is to ask again. Violation for a number that is not accepted,
  // and if the warps of its group do not do the same.
  bool change(unsigned warp, bool increase, unsigned count);
  bool has(unsigned warp, unsigned count) const { return count <= registers_[warp] + free_; }
  // The warp has ended: it may not have done less than others of its group. Its registers are not given back.
  void exit(unsigned warp);
  unsigned of(unsigned warp) const { return registers_[warp]; }
  unsigned num_free() const { return free_; }  // for one thread of each lane of one warp

 private:
  template <typename Function>
  void for_others(unsigned warp, Function function) const;

  std::vector<unsigned> registers_;  // of each warp, a thread
  std::vector<std::vector<bool>> changes_;  // of each warp: whether it asked for more
  std::vector<unsigned char> ended_;
  unsigned free_ = 0;
};

}  // namespace msa_ops::emulator

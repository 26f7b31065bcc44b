#include "register_pool.hpp"

#include <algorithm>
#include <string>

#include "fault.hpp"

namespace msa_ops::emulator {
namespace {

[[noreturn]] void fail(const std::string& message) { throw Violation{FaultKind::kRegisterPool, message}; }

std::string name(bool increase) { return increase ? "n increase" : " decrease"; }

}  // namespace

void RegisterPool::start(unsigned num_warps, unsigned registers) {
  registers_.assign(num_warps, (registers + kStep - 1) / kStep * kStep);
  changes_.assign(num_warps, {});
  ended_.assign(num_warps, 0);
  free_ = 0;
}

template <typename Function>
void RegisterPool::for_others(unsigned warp, Function function) const {
  const unsigned first = warp / kGroupWarps * kGroupWarps;
  for (unsigned other = first; other < std::min<std::size_t>(first + kGroupWarps, registers_.size()); ++other) {
    if (other != warp) function(other);
  }
}

bool RegisterPool::change(unsigned warp, bool increase, unsigned count) {
  if (count < kLeast || count > kMost || count % kStep != 0) {
    fail(std::to_string(count) + " registers; accepted: multiples of 8 from 24 to 256");
  }
  const std::size_t number = changes_[warp].size();
  for_others(warp, [&](unsigned other) {
    const std::vector<bool>& made = changes_[other];
    if (number < made.size() && made[number] != increase) {
      fail("a" + name(increase) + " where warp " + std::to_string(other) + " of the warpgroup has asked for a" +
           name(made[number]));
    }
    if (number >= made.size() && ended_[other] != 0) {
      fail("warp " + std::to_string(other) + " of the warpgroup has ended without it");
    }
  });
  unsigned& own = registers_[warp];
  if (own != 0) {  // else nobody knows how many there are, and ptxas leaves the instruction out
    if (increase ? count < own : count > own) {
      fail("a" + name(increase) + " to " + std::to_string(count) + " registers; the warp has " + std::to_string(own));
    }
    if (!has(warp, count)) return false;
    free_ = free_ + own - count;
    own = count;
  }
  changes_[warp].push_back(increase);
  return true;
}

void RegisterPool::exit(unsigned warp) {
  ended_[warp] = 1;
  for_others(warp, [&](unsigned other) {
    if (changes_[other].size() > changes_[warp].size()) {
      fail("the warp ends without the change that warp " + std::to_string(other) + " of its warpgroup has made");
    }
  });
}

}  // namespace msa_ops::emulator

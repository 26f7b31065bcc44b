// Whether any wave of any device can still change anything, or all of them only look at what nobody changes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace msa_ops::emulator::gfx950 {

class Wave;

class Progress {
 public:
  void start(const Wave* wave) {
    waves_.push_back(wave);
    changed();
  }
  void end(const Wave* wave) {
    waves_.erase(std::find(waves_.begin(), waves_.end(), wave));
    changed();
  }
  // Memory holds something else than before, or a wave has seen that it does.
  void changed() {
    ++epoch_;
    looks_ = 0;
  }
  // A wave has found again what it found before. True if it is time to see whether all do.
  bool look() { return ++looks_ > kPatience + kPatienceAWave * waves_.size() && looks_ % 1024 == 0; }
  std::uint64_t epoch() const { return epoch_; }
  const std::vector<const Wave*>& waves() const { return waves_; }  // that have started and not ended

 private:
  // Stores that are under way become visible sooner than that.
  static constexpr std::uint64_t kPatience = 20'000, kPatienceAWave = 200;

  std::vector<const Wave*> waves_;
  std::uint64_t epoch_ = 1, looks_ = 0;
};

}  // namespace msa_ops::emulator::gfx950

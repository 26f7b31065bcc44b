#include "progress.hpp"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "wave.hpp"

namespace msa_ops::emulator::gfx950 {

void Wave::note_polling(std::uint64_t found) {
  if (polled_at_ == at_) yield();
  polled_at_ = at_;
  Progress& progress = coherence().progress();
  std::uint64_t& last = found_[at_];
  if (last != found) {
    last = found;
    progress.changed();
    return;
  }
  idle_epoch_ = progress.epoch();
  if (!progress.look()) return;
  const std::vector<const Wave*>& waves = progress.waves();
  const auto is_idle = [&](const Wave* one) { return one->at_barrier_ || one->idle_epoch_ == progress.epoch(); };
  if (std::all_of(waves.begin(), waves.end(), is_idle)) report_deadlock(waves);
}

void Wave::report_deadlock(const std::vector<const Wave*>& waves) const {
  constexpr std::size_t kShown = 8;
  std::string message = "all waves wait for what none of them does";
  for (std::size_t i = 0; i < std::min(waves.size(), kShown); ++i) {
    const Wave& one = *waves[i];
    message += "; ";
    if (one.kernel_.device() != kernel_.device()) message += "device " + std::to_string(one.kernel_.device()) + " ";
    message += "workgroup " + std::to_string(one.group()->number) + " wave " + std::to_string(one.index_) + " at " +
               hex(one.kernel_.instructions()[one.at_].address) + (one.at_barrier_ ? " at a barrier" : "");
  }
  if (waves.size() > kShown) message += "; and " + std::to_string(waves.size() - kShown) + " more";
  throw Violation{FaultKind::kDeadlock, message};
}

}  // namespace msa_ops::emulator::gfx950

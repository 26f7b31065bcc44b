#include "remote_use.hpp"

namespace msa_ops::emulator {

void RemoteUse::start(const Ordering& ordering, unsigned first_warp, unsigned num_warps) {
  ordering_ = &ordering;
  first_warp_ = first_warp;
  num_warps_ = num_warps;
  uses_.clear();
  last_ = nullptr;
}

void RemoteUse::note(Key key, const Use& use) {
  if (last_ == nullptr || key != last_key_) {
    last_ = &uses_[key];
    last_key_ = key;
  }
  *last_ = use;
}

void RemoteUse::note_work(AccessId access) {
  const Ordering::Record& work = ordering_->record(access);
  if (is_remote(work.warp) || ordering_->is_mbarrier(work.actor)) {
    note({work.actor, 0}, {work.clock, 0, work.warp, work.pc});
  }
}

std::optional<RemoteUse::Use> RemoteUse::unknown() const {
  for (const auto& [key, use] : uses_) {
    bool known = false;
    for (unsigned warp = first_warp_; warp < first_warp_ + num_warps_ && !known; ++warp) {
      known = ordering_->has_heard(warp, key.first, use.clock) ||
              (use.phase != 0 && ordering_->has_heard(warp, key.second, static_cast<Clock>(use.phase)));
    }
    if (!known) return use;
  }
  return std::nullopt;
}

}  // namespace msa_ops::emulator

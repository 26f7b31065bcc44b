// What orders waves of a workgroup through the LDS itself: atomic operations that give back what they found, and flags
// that a wave polls. Operations of a wave on the LDS happen in their order, and all waves see one order, so whoever has
// seen a store of another wave may use everything which that wave did in the LDS before it.
#pragma once

#include <array>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

namespace msa_ops::emulator::gfx950 {

class LdsOrder {
 public:
  static constexpr unsigned kWaves = 16;  // of a workgroup, at most
  void reset();
  // Instructions that touch the LDS, of all waves: the time of what they do.
  void tick() { ++now_; }
  std::uint32_t now() const { return now_; }

  // Whether `wave` has seen anything of others.
  bool knows_others(unsigned wave) const { return !history_[wave].empty(); }
  bool has_locks() const { return has_locks_; }
  // Whether `wave` has seen that the other did everything up to `time`.
  bool after(unsigned wave, unsigned other, std::uint32_t time) const { return known_[wave][other] >= time; }
  // The same of every atomic operation of other waves on the dword.
  bool after_atomics(unsigned wave, std::uint32_t address) const;

  // `wave` has seen what `other` stored at `time`, or what atomic operations made of a dword.
  void take_up(unsigned wave, unsigned other, std::uint32_t time);
  void take_up_atomics(unsigned wave, std::uint32_t address);
  // An atomic operation of `wave`. locks: an exchange that tells the wave what it found.
  void atomic(unsigned wave, std::uint32_t address, bool locks);
  // Whether the wave has exchanged this dword: it may store there to give a lock back.
  bool may_unlock(unsigned wave, std::uint32_t address) const;

 private:
  using Clock = std::array<std::uint32_t, kWaves>;
  struct Location {
    Clock last{};   // atomic operation of each wave
    Clock known{};  // what those who made them knew
    std::uint32_t lockers = 0;
  };
  void join(unsigned wave, const Clock& clock);

  std::uint32_t now_ = 1;  // nobody knows of anything at 0
  std::array<Clock, kWaves> known_{};
  std::array<std::vector<std::pair<std::uint32_t, Clock>>, kWaves> history_;  // known_ of a wave from a time on
  std::unordered_map<std::uint32_t, Location> locations_;
  bool has_locks_ = false;
};

}  // namespace msa_ops::emulator::gfx950

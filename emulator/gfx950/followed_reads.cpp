// Reads of the LDS whose values are followed to their first use.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "wave.hpp"

namespace msa_ops::emulator::gfx950 {

void Wave::follow(Outstanding& operation) {
  constexpr std::size_t kMost = 64;
  if (followed_.size() == kMost) {
    stop_following();
    followed_all_ = false;
  }
  FollowedRead& read = followed_.emplace_back();
  read.instruction = at_;
  read.registers = operation.registers;
  read.lanes = operation.lanes & ~operation.undefined;
  read.used = 0;
  read.bytes = operation.lds_bytes;
  read.bytes_b = operation.lds_bytes_b;
  std::memcpy(read.address, operation.lds_address, sizeof(Row));
  if (read.bytes_b != 0) std::memcpy(read.address_b, operation.lds_address_b, sizeof(Row));
  operation.followed = static_cast<std::uint32_t>(followed_.size());
}

void Wave::use(unsigned index, Mask lanes) const {
  followed_[follows_[index] - 1].used |= lanes;
  unused_[index] &= ~lanes & ~ready_[index];
  ready_[index] |= lanes;
}

// What has been read until now stays so: a barrier comes, or too much was read.
void Wave::stop_following() {
  for (FollowedRead& read : followed_) {
    for (unsigned r = read.registers.first; r < unsigned{read.registers.first} + read.registers.count; ++r) {
      ready_[r] |= unused_[r];
      unused_[r] = 0;
    }
  }
  followed_.clear();
  for (unsigned i = 0; i < lds_count_; ++i) lds_queue_[(lds_head_ + i) % lds_queue_.size()].followed = 0;
}

bool Wave::forget_read(std::uint32_t address, unsigned byte_mask, const Violation& fault) {
  if (!followed_all_) return false;
  const auto meets = [&](std::uint32_t at, std::uint32_t bytes) {
    for (unsigned byte = 0; byte < 4; ++byte) {
      if ((byte_mask >> byte & 1) != 0 && address + byte >= at && address + byte < at + bytes) return true;
    }
    return false;
  };
  for (std::size_t index = 0; index < followed_.size(); ++index) {
    FollowedRead& read = followed_[index];
    Mask met = 0;
    for_lanes(read.lanes, [&](unsigned lane) {
      if (meets(read.address[lane], read.bytes) || (read.bytes_b != 0 && meets(read.address_b[lane], read.bytes_b)))
        met |= Mask{1} << lane;
    });
    if (met == 0) continue;
    if (kernel_.accepted().has(FaultKind::kRace, kernel_.instructions()[read.instruction].address)) continue;
    if ((met & read.used) != 0) return false;
    read.lanes &= ~met;
    races_.insert_or_assign(read.instruction, fault);
    for (unsigned r = read.registers.first; r < unsigned{read.registers.first} + read.registers.count; ++r) {
      if (unused_[r] == 0 || follows_[r] != index + 1) continue;
      // Lanes that have been written since have another value.
      const Mask lost = unused_[r] & met & ~ready_[r];
      unused_[r] &= ~lost;
      if (lost != 0) origins_[r] = {read.instruction, static_cast<std::uint16_t>(r), Origin::Kind::kRace};
    }
    for (unsigned i = 0; i < lds_count_; ++i) {
      Outstanding& operation = lds_queue_[(lds_head_ + i) % lds_queue_.size()];
      if (operation.followed != index + 1) continue;
      operation.undefined |= met;
      operation.raced |= met;
    }
  }
  return true;
}

}  // namespace msa_ops::emulator::gfx950

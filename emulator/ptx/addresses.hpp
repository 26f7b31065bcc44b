// Where an address of an instruction leads.
#pragma once

#include <cstdint>

#include "warp.hpp"

namespace msa_ops::emulator::ptx {

// Generic addresses: those of global memory are its own; shared memory of the cluster and local memory have windows
// that no allocation of the host can be in.
constexpr std::uint64_t kSharedWindow = std::uint64_t{1} << 56;
constexpr std::uint64_t kLocalWindow = std::uint64_t{1} << 57;
constexpr std::uint64_t kWindowBytes = std::uint64_t{1} << 32;

inline bool in_window(std::uint64_t address, std::uint64_t window) {
  return address >= window && address - window < kWindowBytes;
}

// The space that a generic address lies in, and the address there.
inline MemorySpace space_of(std::uint64_t& address) {
  if (address < kSharedWindow) return MemorySpace::kGlobal;
  if (in_window(address, kSharedWindow)) {
    address -= kSharedWindow;
    return MemorySpace::kCluster;
  }
  if (in_window(address, kLocalWindow)) {
    address -= kLocalWindow;
    return MemorySpace::kLocal;
  }
  return MemorySpace::kGlobal;
}

// The value of an address operand with its displacement, without regard to what it means.
inline std::uint64_t address_of(PtxWarp& warp, const Operand& base, unsigned lane, std::uint64_t displacement,
                                MemorySpace space) {
  const std::uint64_t address = warp.value(base, lane) + displacement;
  if (space == MemorySpace::kConstant) return warp.kernel().constant_address(address);
  const bool narrow = space == MemorySpace::kShared || space == MemorySpace::kCluster || space == MemorySpace::kLocal;
  return narrow ? address & 0xffffffffU : address;  // of 32 bits, whatever register holds it
}

// An address of shared memory of the cluster, from an operand in any of its spaces: `S` operands, and `A` operands of
// kShared, kCluster and kGeneric forms. A shared::cta address must be of the block itself.
struct SharedPlace {
  ThreadBlock* block;
  std::uint64_t address;
};
inline SharedPlace shared_place(PtxWarp& warp, std::uint64_t address, MemorySpace space, unsigned lane) {
  const int who = static_cast<int>(lane);
  if (space == MemorySpace::kGeneric && space_of(address) != MemorySpace::kCluster) {
    throw Violation{FaultKind::kOutOfBounds, "a generic address that is not one of shared memory", who, address};
  }
  ThreadBlock& block = warp.block().holder(address, who);
  if (space == MemorySpace::kShared && &block != &warp.block()) {
    throw Violation{FaultKind::kOutOfBounds, "shared memory of another block, without .shared::cluster", who, address};
  }
  return {&block, address};
}

enum class Use { kRead, kWrite, kUpdate };

// What the other blocks and devices have to do with an access of global memory.
template <Use use>
inline void watch_global(PtxWarp& warp, const Instruction& i, std::uint64_t address, std::size_t bytes, int lane) {
  GlobalWatch& watch = warp.block().cluster().watch();
  if (!watch.is_on()) return;
  if (use == Use::kRead && i.late) return warp.read_late(address, bytes, lane);
  const bool strong = use == Use::kUpdate || i.order != Order::kDefault;
  watch.use(address, bytes, use != Use::kRead, {strong, i.scope, 0, i.read_only}, lane);
  if (!strong) return;
  const bool both = i.order == Order::kAcquireRelease;
  if (use != Use::kRead) watch.publish(address, both || i.order == Order::kRelease, use == Use::kWrite, i.scope);
  if (use != Use::kWrite) watch.take_up(address, both || i.order == Order::kAcquire, i.scope);
}

// The bytes of one lane's access, checked. With `written` it is no fault to read shared memory that nothing has
// written.
template <Use use>
inline std::byte* access(PtxWarp& warp, const Instruction& i, std::uint64_t address, std::size_t bytes,
                         MemorySpace space, unsigned lane, bool* written = nullptr) {
  const int who = static_cast<int>(lane);
  if (space == MemorySpace::kGeneric) space = space_of(address);
  switch (space) {
    case MemorySpace::kShared:
    case MemorySpace::kCluster: {
      SharedMemory& shared = shared_place(warp, address, space, lane).block->shared();
      const bool strong = i.order != Order::kDefault;
      const Strength strength = strong ? Strength::kStrong : Strength::kWeak;
      if (use != Use::kWrite && (strong || use == Use::kUpdate)) {
        shared.take_up(address, i.order == Order::kAcquire || i.order == Order::kAcquireRelease, i.scope);
      }
      if (use != Use::kRead && (strong || use == Use::kUpdate)) {
        shared.publish(address, i.order == Order::kRelease || i.order == Order::kAcquireRelease, i.scope);
      }
      if (use == Use::kRead && written != nullptr) {
        return const_cast<std::byte*>(shared.read(address, bytes, who, strength, *written));
      }
      if (use == Use::kRead) return const_cast<std::byte*>(shared.read(address, bytes, who, strength));
      if (use == Use::kWrite) return shared.write(address, bytes, who, strength);
      return shared.update(address, bytes, who, !i.form->replaces);
    }
    case MemorySpace::kLocal: return warp.local(address, bytes, use != Use::kRead, who);
    default: {
      if (use == Use::kRead && i.order != Order::kDefault) {
        auto* const found = const_cast<std::byte*>(warp.block().global().at_strongly(address, bytes, who));
        watch_global<use>(warp, i, address, bytes, who);
        return found;
      }
      std::byte* const place = warp.block().global().at(address, bytes, use != Use::kRead, who);
      if (use == Use::kUpdate) warp.block().global().count_read(address, bytes);
      watch_global<use>(warp, i, address, bytes, who);
      return place;
    }
  }
}

}  // namespace msa_ops::emulator::ptx

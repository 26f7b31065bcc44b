#include "shared_tile.hpp"

#include <string>

#include "../device/fault.hpp"

namespace msa_ops::emulator::ptx {
namespace {

std::uint32_t field(std::uint64_t descriptor, unsigned at) {
  return static_cast<std::uint32_t>(descriptor >> at & 0x3fff) << 4;
}

[[noreturn]] void refuse(const std::string& what) {
  throw Violation{FaultKind::kDescriptor, "the descriptor of an operand in shared memory has " + what};
}

// The "base offset": bits 7 to 9 of the address at which the pattern of the swizzle starts, for operands where these are
// not zero.
std::uint32_t pattern_of(std::uint64_t descriptor, SharedTile::Swizzle swizzle) {
  const auto offset = static_cast<std::uint32_t>(descriptor >> 49 & 7);
  if (offset != 0 && swizzle == SharedTile::Swizzle::kNone) refuse("a base offset without a swizzle");
  return offset << 7;
}

}  // namespace

SharedTile SharedTile::of_hopper(std::uint64_t descriptor) {
  constexpr Swizzle kModes[]{Swizzle::kNone, Swizzle::k128, Swizzle::k64, Swizzle::k32};
  const Swizzle swizzle = kModes[descriptor >> 62];
  return {field(descriptor, 0), field(descriptor, 16), field(descriptor, 32), swizzle, pattern_of(descriptor, swizzle), false};
}

SharedTile SharedTile::of_blackwell(std::uint64_t descriptor) {
  if ((descriptor >> 46 & 7) != 1) {
    refuse("version " + std::to_string(descriptor >> 46 & 7) + " in bits 46 to 48; tcgen05 takes 1");
  }
  SharedTile tile{field(descriptor, 0), field(descriptor, 16), field(descriptor, 32), Swizzle::kNone, 0,
                  (descriptor >> 52 & 1) != 0};
  switch (descriptor >> 61) {
    case 0: break;
    case 1: tile.swizzle = Swizzle::k128Of32; break;
    case 2: tile.swizzle = Swizzle::k128; break;
    case 4: tile.swizzle = Swizzle::k64; break;
    case 6: tile.swizzle = Swizzle::k32; break;
    default: refuse("swizzle mode " + std::to_string(descriptor >> 61) + "; accepted: 0, 1, 2, 4, 6");
  }
  tile.pattern = pattern_of(descriptor, tile.swizzle);
  return tile;
}

unsigned SharedTile::width() const {
  switch (swizzle) {
    case Swizzle::k32: return 32;
    case Swizzle::k64: return 64;
    case Swizzle::k128:
    case Swizzle::k128Of32: return 128;
    default: return 16;
  }
}

std::uint32_t SharedTile::permuted(std::uint32_t address) const {
  const std::uint32_t place = address - pattern;  // in the pattern
  switch (swizzle) {
    case Swizzle::k32: return address ^ (place >> 3 & 0x10);
    case Swizzle::k64: return address ^ (place >> 3 & 0x30);
    case Swizzle::k128: return address ^ (place >> 3 & 0x70);
    case Swizzle::k128Of32: return address ^ (place >> 2 & 0x60);
    default: return address;
  }
}

std::uint32_t SharedTile::k_major(unsigned row, unsigned chunk) const {
  if (swizzle == Swizzle::k128Of32) refuse("a swizzle of 32-byte atoms, which is for MN-major operands");
  const std::uint32_t of_row = row % 8 * width() + row / 8 * stride;
  if (swizzle == Swizzle::kNone) {
    if (leading_is_address) refuse("an absolute leading address without a swizzle");
    return start + of_row + chunk * leading;
  }
  const unsigned chunks = width() / kChunk;
  if (leading_is_address) {
    const unsigned at = start % width() / kChunk + chunk;
    return permuted((at < chunks ? start + chunk * kChunk : leading + (at - chunks) * kChunk) + of_row);
  }
  return permuted(start + of_row + chunk % chunks * kChunk + chunk / chunks * leading);
}

std::uint32_t SharedTile::mn_major(unsigned chunk, unsigned k) const {
  if (leading_is_address) refuse("an absolute leading address, which is for K-major operands");
  if (swizzle == Swizzle::kNone) return start + chunk * stride + k % 8 * kChunk + k / 8 * leading;
  const unsigned chunks = width() / kChunk, rows = swizzle == Swizzle::k128Of32 ? 4 : 8;
  return permuted(start + chunk % chunks * kChunk + chunk / chunks * leading + k % rows * width() + k / rows * stride);
}

}  // namespace msa_ops::emulator::ptx

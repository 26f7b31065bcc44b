#include "tensor_map.hpp"

#include <cstring>
#include <stdexcept>

namespace msa_ops::emulator::ptx {
namespace {

constexpr unsigned kFlags = 2, kStrides = 3, kHighStrides = 7, kSizes = 8, kSteps = 13, kCorners = 14, kPixels = 15;
constexpr std::uint32_t kMostPixels = 1024;
// The driver's limit lies between 127,296 and 272,064: taken as the shared memory of a block.
constexpr std::uint64_t kMostBoxBytes = 232'448;
constexpr unsigned kWithoutTf32 = 2;        // narrow types are stored as if the two of tf32 did not exist
constexpr unsigned kBox0Byte = 13 * 4 + 3;  // those of the other dimensions follow

std::uint32_t word(const std::byte* bytes, unsigned index) {
  std::uint32_t value = 0;
  std::memcpy(&value, bytes + 4 * index, sizeof(value));
  return value;
}

void set_word(std::byte* bytes, unsigned index, std::uint32_t value) {
  std::memcpy(bytes + 4 * index, &value, sizeof(value));
}

void set_bits(std::byte* bytes, unsigned index, unsigned first, unsigned count, std::uint32_t value) {
  const std::uint32_t mask = ((1U << count) - 1) << first;
  set_word(bytes, index, (word(bytes, index) & ~mask) | (value << first & mask));
}

// Bits of a number of a corner, by how many there are.
unsigned corner_bits(unsigned numbers) { return numbers == 1 ? 16 : numbers == 2 ? 8 : 5; }

std::int32_t signed_field(std::uint32_t word, unsigned first, unsigned count) {
  return static_cast<std::int32_t>(word << (32 - first - count)) >> (32 - count);
}

[[noreturn]] void refuse(const std::string& reason) { throw std::invalid_argument("tensor map: " + reason); }

}  // namespace

TensorMap TensorMap::decode(const std::byte* bytes) {
  TensorMap map;
  const std::uint32_t flags = word(bytes, kFlags);
  map.address = word(bytes, 0) | static_cast<std::uint64_t>(word(bytes, 1)) << 32;
  map.rank = (flags >> 4 & 7) + 1;
  const unsigned type = flags >> 7 & 15;
  const bool is_tf32 = (flags >> 16 & 1) != 0;
  if (is_tf32) map.type = type == static_cast<unsigned>(Type::kF32Flush) ? Type::kTf32Flush : Type::kTf32;
  else map.type = static_cast<Type>(type > static_cast<unsigned>(Type::kBf16) ? type + kWithoutTf32 : type);
  map.interleave = flags >> 11 & 3;
  map.swizzle = flags >> 13 & 3;
  map.nan_outside = (flags >> 15 & 1) != 0;
  map.atomicity = static_cast<Atomicity>(flags >> 19 & 3);
  map.strides[0] = map.element_bits() / 8;
  for (unsigned i = 0; i < kMostDimensions; ++i) {
    map.sizes[i] = std::uint64_t{word(bytes, kSizes + i)} + 1;
    map.box[i] = static_cast<std::uint32_t>(bytes[kBox0Byte + i]) + 1;
    map.steps[i] = (word(bytes, kSteps) >> (3 * i) & 7) + 1;
    if (i > 0) {
      const std::uint64_t high = word(bytes, kHighStrides) >> (4 * (i - 1)) & 15;
      map.strides[i] = (word(bytes, kStrides + i - 1) | high << 32) * 16;
    }
  }
  map.im2col = (flags & 1) != 0;
  if (map.im2col && map.rank >= 3 && map.rank <= kMostDimensions) {
    const std::uint32_t corners = word(bytes, kCorners);
    const unsigned numbers = map.corner_numbers(), bits = corner_bits(numbers);
    for (unsigned i = 0; i < numbers; ++i) {
      map.lower[i] = signed_field(corners, i * bits, bits);
      map.upper[i] = signed_field(corners, 16 + i * bits, bits);
    }
    map.pixels = (word(bytes, kPixels) & (kMostPixels - 1)) + 1;
    for (unsigned i = 1; i < kMostDimensions; ++i) map.box[i] = 1;
  }
  return map;
}

void TensorMap::replace(std::byte* bytes, Field field, unsigned dimension, std::uint64_t value) {
  const auto low = static_cast<std::uint32_t>(value);
  switch (field) {
    case Field::kAddress: std::memcpy(bytes, &value, sizeof(value)); return;
    case Field::kRank: return set_bits(bytes, kFlags, 4, 3, low);
    case Field::kBox: bytes[kBox0Byte + dimension] = static_cast<std::byte>(low - 1); return;
    case Field::kSize: return set_word(bytes, kSizes + dimension, low - 1);
    case Field::kStride: {
      const std::uint64_t units = value / 16;
      set_word(bytes, kStrides + dimension, static_cast<std::uint32_t>(units));
      return set_bits(bytes, kHighStrides, 4 * dimension, 4, static_cast<std::uint32_t>(units >> 32));
    }
    case Field::kStep: return set_bits(bytes, kSteps, 3 * dimension, 3, low - 1);
    case Field::kType: {
      const auto type = static_cast<Type>(low);
      const bool tf32 = type == Type::kTf32 || type == Type::kTf32Flush;
      unsigned stored = type > Type::kTf32Flush ? low - kWithoutTf32 : low;
      if (tf32) stored = static_cast<unsigned>(type == Type::kTf32 ? Type::kF32 : Type::kF32Flush);
      set_bits(bytes, kFlags, 7, 4, stored);
      return set_bits(bytes, kFlags, 16, 1, tf32 ? 1 : 0);
    }
    case Field::kInterleave: return set_bits(bytes, kFlags, 11, 2, low);
    case Field::kSwizzle: return set_bits(bytes, kFlags, 13, 2, low);
    case Field::kAtomicity: return set_bits(bytes, kFlags, 19, 2, low);
    case Field::kFill: return set_bits(bytes, kFlags, 15, 1, low);
  }
}

void TensorMap::encode(std::byte* bytes, unsigned l2_promotion) const {
  std::memset(bytes, 0, kBytes);
  const unsigned least = im2col ? 3 : 1;
  if (rank < least || rank > kMostDimensions) {
    refuse(std::to_string(rank) + " dimensions; accepted: " + std::to_string(least) + " to 5");
  }
  for (unsigned i = 0; i < rank; ++i) {
    const std::string of = " of dimension " + std::to_string(i);
    if (sizes[i] < 1 || sizes[i] > std::uint64_t{1} << 32) refuse("a size of " + std::to_string(sizes[i]) + of);
    if (box[i] < 1 || box[i] > 256) {
      refuse((im2col ? std::to_string(box[i]) + " channels" : "a box of " + std::to_string(box[i]) + of) +
             "; accepted: 1 to 256");
    }
    if (steps[i] < 1 || steps[i] > 8) refuse("a step of " + std::to_string(steps[i]) + of + "; accepted: 1 to 8");
    if (i > 0 && (strides[i] % 16 != 0 || strides[i] >= std::uint64_t{1} << 40 || strides[i] == 0)) {
      refuse("a stride of " + std::to_string(strides[i]) + of + "; accepted: multiples of 16 below 2^40");
    }
  }
  if (const std::string reason = problem(); !reason.empty()) refuse(reason);
  const bool integers = type <= Type::kS64 || type >= Type::kB4x16;
  if (nan_outside && integers) refuse("NaN outside of a tensor of integers");
  if (l2_promotion > 3) refuse("L2 promotion " + std::to_string(l2_promotion) + "; accepted: 0 to 3");
  if (im2col) check_pixels();
  std::uint64_t bytes_of_box = padded_bytes();  // of sixteen
  for (unsigned i = 0; i < rank && !im2col; ++i) bytes_of_box *= box[i] / steps[i];
  if (bytes_of_box / 16 > kMostBoxBytes) {
    refuse("a box of " + std::to_string(bytes_of_box / 16) + " bytes; accepted: up to " +
           std::to_string(kMostBoxBytes));
  }
  replace(bytes, Field::kAddress, 0, address);
  replace(bytes, Field::kRank, 0, rank - 1);
  replace(bytes, Field::kType, 0, static_cast<unsigned>(type));
  replace(bytes, Field::kInterleave, 0, interleave);
  replace(bytes, Field::kSwizzle, 0, swizzle);
  replace(bytes, Field::kAtomicity, 0, static_cast<unsigned>(atomicity));
  replace(bytes, Field::kFill, 0, nan_outside ? 1 : 0);
  set_bits(bytes, kFlags, 17, 2, l2_promotion);
  for (unsigned i = 0; i < rank; ++i) {
    replace(bytes, Field::kSize, i, sizes[i]);
    if (!im2col || i == 0) replace(bytes, Field::kBox, i, box[i]);
    replace(bytes, Field::kStep, i, steps[i]);
    if (i > 0) replace(bytes, Field::kStride, i - 1, strides[i]);
  }
  if (!im2col) return;
  set_bits(bytes, kFlags, 0, 1, 1);
  const unsigned numbers = corner_numbers(), bits = corner_bits(numbers);
  for (unsigned i = 0; i < numbers; ++i) {
    set_bits(bytes, kCorners, i * bits, bits, static_cast<std::uint32_t>(lower[i]));
    set_bits(bytes, kCorners, 16 + i * bits, bits, static_cast<std::uint32_t>(upper[i]));
  }
  set_bits(bytes, kPixels, 0, 10, pixels - 1);
}

// Numbers that do not fit, and places of which none is left.
void TensorMap::check_pixels() const {
  if (pixels < 1 || pixels > kMostPixels) {
    refuse(std::to_string(pixels) + " pixels; accepted: 1 to " + std::to_string(kMostPixels));
  }
  const std::int32_t end = 1 << (corner_bits(corner_numbers()) - 1);
  for (unsigned i = 0; i < corner_numbers(); ++i) {
    for (const std::int32_t number : {lower[i], upper[i]}) {
      if (number >= -end && number < end) continue;
      refuse("a corner of " + std::to_string(number) + "; accepted: " + std::to_string(-end) + " to " +
             std::to_string(end - 1) + " with " + std::to_string(rank) + " dimensions");
    }
    // The driver takes a size of 2^32 for none here.
    const std::int64_t last = last_place(i) - (sizes[1 + i] == std::uint64_t{1} << 32 ? std::int64_t{1} << 32 : 0);
    if (last < lower[i]) refuse("corners that leave no place in dimension " + std::to_string(1 + i));
  }
}

std::string TensorMap::problem() const {
  if (rank > kMostDimensions) return "more than 5 dimensions";
  if (address % 16 != 0) return "an address that is not a multiple of 16";
  if (interleave != 0) return "interleaving, which is not executed here";
  if (im2col && rank < 3) return "pixels of less than 3 dimensions";
  if (row_bytes() == 0 || row_bytes() % 16 != 0) {
    return "a box whose dimension 0 has " + std::to_string(row_bytes()) + " bytes; accepted: multiples of 16";
  }
  const std::size_t span = std::size_t{16} << swizzle;
  if (swizzle != 0 && row_bytes() > span) {
    return "a box whose dimension 0 has " + std::to_string(row_bytes()) + " bytes; the swizzle takes " +
           std::to_string(span) + " at most";
  }
  if (element_bits() < 8 && sizes[0] % (type == Type::kB4x16 ? 2 : 128) != 0) {
    return "a size of dimension 0 that narrow elements do not fill";
  }
  return "";
}

unsigned TensorMap::element_bits() const {
  switch (type) {
    case Type::kU8: return 8;
    case Type::kU16:
    case Type::kF16:
    case Type::kBf16: return 16;
    case Type::kU64:
    case Type::kS64:
    case Type::kF64: return 64;
    case Type::kB4x16:
    case Type::kB4x16P64: return 4;
    case Type::kB6x16P32: return 6;
    default: return 32;
  }
}

unsigned TensorMap::padded_bytes() const {
  return type == Type::kB4x16P64 || type == Type::kB6x16P32 ? 16 : packed_bytes();
}

std::uint32_t TensorMap::count(unsigned dimension) const {
  return dimension == 0 ? box[0] : (box[dimension] + steps[dimension] - 1) / steps[dimension];
}

std::size_t TensorMap::row_bytes() const { return std::size_t{count(0)} * padded_bytes() / 16; }

std::size_t TensorMap::box_bytes() const {
  std::size_t bytes = row_bytes();
  if (im2col) return bytes * pixels;
  for (unsigned i = 1; i < rank; ++i) bytes *= count(i);
  return bytes;
}

std::uint64_t TensorMap::swizzled(std::uint64_t at) const {
  switch (swizzle) {
    case 1: return at ^ (at >> 3 & 0x10);
    case 2: return at ^ (at >> 3 & 0x30);
    case 3:
      switch (atomicity) {
        case Atomicity::k16: return at ^ (at >> 3 & 0x70);
        case Atomicity::k32: return at ^ (at >> 2 & 0x60);
        case Atomicity::k32Flip8: return at ^ (at >> 2 & 0x60) ^ (at >> 4 & 0x8);
        case Atomicity::k64: return at ^ (at >> 1 & 0x40);
      }
      return at;
    default: return at;
  }
}

}  // namespace msa_ops::emulator::ptx

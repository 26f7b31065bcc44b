// Tensor maps: what 128 bytes say about a tensor in global memory and the boxes that are copied out of it.
//
// The layout, in 32-bit words, as cuTensorMapEncodeTiled writes it on an H200: 0-1 address; 2 flags; 3-6 the low
// words of the strides of dimensions 1 to 4 in units of 16 bytes, whose bits 32 to 35 are the nibbles of word 7; 8-12
// sizes less one; 13 the steps of the five dimensions less one, three bits each, and in its last byte the box of
// dimension 0 less one; 14 the boxes of the others less one. Flags: 4-6 rank less one, 7-10 element type, 11-12
// interleaving, 13-14 swizzle, 15 NaN outside, 16 with type f32: tf32, 17-18 L2 promotion, 19-20 atomicity of the
// swizzle. Other bits, and words from 15 on, which hold what follows from these, are not read. tensormap.replace as
// ptxas expands it agrees. As cuTensorMapEncodeIm2col writes it: bit 0 of the flags; 13, last byte: channels less one; 14
// the lower corner of the pixels (width first) and in its upper half the upper one, in 16, 8 or 5 bits a number for 1, 2
// or 3 of them; 15 pixels less one. Its fields are in the first 64 bytes too.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace msa_ops::emulator::ptx {

struct TensorMap {
  static constexpr unsigned kMostDimensions = 5;
  // As tensormap.replace numbers them.
  enum class Type : unsigned {
    kU8, kU16, kU32, kS32, kU64, kS64, kF16, kF32, kF32Flush, kF64, kBf16, kTf32, kTf32Flush, kB4x16, kB4x16P64,
    kB6x16P32
  };
  enum class Atomicity : unsigned { k16, k32, k32Flip8, k64 };

  std::uint64_t address = 0;
  unsigned rank = 1;
  Type type = Type::kU8;
  std::array<std::uint64_t, kMostDimensions> sizes{};    // elements
  std::array<std::uint64_t, kMostDimensions> strides{};  // bytes; that of dimension 0 is the element's
  std::array<std::uint32_t, kMostDimensions> box{};      // elements of global memory that a box spans
  // Of these only every so many are copied; in dimension 0 all are, whatever its step.
  std::array<std::uint32_t, kMostDimensions> steps{};
  // Columns of pixels instead of boxes: `pixels` of box[0] channels each, along width, height, depth and number. They are
  // those whose coordinates are from the lower corner to the last one of the tensor plus the upper corner.
  bool im2col = false;
  std::uint32_t pixels = 1;
  std::array<std::int32_t, 3> lower{}, upper{};
  unsigned corner_numbers() const { return rank - 2; }
  unsigned interleave = 0;
  unsigned swizzle = 0;                                   // 0: none, 1 to 3: within 32, 64, 128 bytes
  Atomicity atomicity = Atomicity::k16;
  bool nan_outside = false;

  static constexpr std::size_t kBytes = 128;
  static constexpr std::size_t kUsedBytes = 64;  // every field is in the first half
  static TensorMap decode(const std::byte* bytes);
  // Throws std::invalid_argument, with the reason, for what cuTensorMapEncodeTiled or, with im2col, ...Im2col refuses.
  void encode(std::byte* bytes, unsigned l2_promotion = 0) const;
  // The reason why a copy cannot use it, or nothing.
  std::string problem() const;

  unsigned element_bits() const;         // in global memory
  // Bytes of sixteen elements, in global memory and in shared memory, where narrow types may be padded.
  unsigned packed_bytes() const { return element_bits() * 2; }
  unsigned padded_bytes() const;
  std::uint32_t count(unsigned dimension) const;  // elements of a box that are copied
  std::size_t row_bytes() const;         // of dimension 0 of a box or a pixel, in shared memory
  std::size_t box_bytes() const;         // of a box, which a copy moves
  // From one row in shared memory to the next: rows fill the width of the swizzle, whose rest keeps what it holds.
  std::size_t pitch() const { return swizzle == 0 ? row_bytes() : std::size_t{16} << swizzle; }
  // Where a byte of a box goes, given where it would go without swizzle.
  std::uint64_t swizzled(std::uint64_t address) const;

  std::int64_t last_place(unsigned i) const {  // the last coordinate of pixels along dimension 1 + i
    return static_cast<std::int64_t>(sizes[1 + i]) - 1 + upper[i];
  }

  // One field of the bytes, as tensormap.replace sets it.
  enum class Field {
    kAddress, kRank, kBox, kSize, kStride, kStep, kType, kInterleave, kSwizzle, kAtomicity, kFill
  };
  static void replace(std::byte* bytes, Field field, unsigned dimension, std::uint64_t value);

 private:
  void check_pixels() const;
};

}  // namespace msa_ops::emulator::ptx

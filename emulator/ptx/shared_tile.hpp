// Operands of matrix instructions in shared memory: where a 64-bit descriptor says that their elements stand.
//
// Memory is seen in chunks of 16 bytes. K-major: a chunk holds elements of one row (of M or N) along k. MN-major: it
// holds elements of one k along M or N. Chunks are permuted by XOR of address bits ("swizzle").
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace msa_ops::emulator::ptx {

constexpr unsigned kChunk = 16;  // bytes

struct SharedTile {
  enum class Swizzle : std::uint8_t { kNone, k32, k64, k128, k128Of32 };

  std::uint32_t start = 0;    // address
  std::uint32_t leading = 0;  // bytes
  std::uint32_t stride = 0;
  Swizzle swizzle = Swizzle::kNone;
  std::uint32_t pattern = 0;  // address, modulo 1,024, at which the swizzle's pattern starts
  bool leading_is_address = false;  // where a row goes on after the end of its part of `width()` bytes

  // Of wgmma, and of tcgen05. Throw a Violation for what no chip takes or this emulator does not know.
  static SharedTile of_hopper(std::uint64_t descriptor);
  static SharedTile of_blackwell(std::uint64_t descriptor);

  // Address of chunk `chunk` along k of a row, and of chunk `chunk` along M or N at one k.
  std::uint32_t k_major(unsigned row, unsigned chunk) const;
  std::uint32_t mn_major(unsigned chunk, unsigned k) const;

 private:
  unsigned width() const;  // bytes after which the swizzle's pattern goes to the next row
  std::uint32_t permuted(std::uint32_t address) const;
};

// Copy `count` rows (of M or N) from row `first`, `k_bytes` or `depth` of each along k, with bytes_at(address) for the
// 16 bytes of a chunk: K-major to [count][k_bytes], MN-major to [depth][bytes of count rows].
template <typename BytesAt>
void copy_k_major(const SharedTile& tile, unsigned first, unsigned count, unsigned k_bytes, unsigned char* out,
                  BytesAt bytes_at) {
  for (unsigned row = first; row < first + count; ++row) {
    for (unsigned chunk = 0; chunk < k_bytes / kChunk; ++chunk, out += kChunk) {
      std::memcpy(out, bytes_at(tile.k_major(row, chunk)), kChunk);
    }
  }
}

template <typename BytesAt>
void copy_mn_major(const SharedTile& tile, unsigned first, unsigned count, unsigned bits, unsigned depth,
                   unsigned char* out, BytesAt bytes_at) {
  const unsigned rows_a_chunk = kChunk * 8 / bits;
  for (unsigned k = 0; k < depth; ++k) {
    for (unsigned row = first; row < first + count; row += rows_a_chunk, out += kChunk) {
      std::memcpy(out, bytes_at(tile.mn_major(row / rows_a_chunk, k)), kChunk);
    }
  }
}

}  // namespace msa_ops::emulator::ptx

// Where the lanes of a memory instruction go.
#pragma once

#include <cstdint>

#include "wave.hpp"

namespace msa_ops::emulator::gfx950 {

// A buffer resource, raw or structured.
struct BufferResource {
  std::uint64_t base;
  std::uint32_t stride, num_records;
  bool swizzled;

  BufferResource(const Wave& wave, unsigned sgpr)
      : base(wave.sgpr(sgpr) | static_cast<std::uint64_t>(wave.sgpr(sgpr + 1) & 0xffff) << 32),
        stride(wave.sgpr(sgpr + 1) >> 16 & 0x3fff),
        num_records(wave.sgpr(sgpr + 2)),
        swizzled((wave.sgpr(sgpr + 1) >> 31) != 0) {
    if ((wave.sgpr(sgpr + 3) >> 23 & 1) != 0)
      throw Violation{FaultKind::kIllegal, "a buffer resource that adds the lane's number"};
    if (swizzled) throw Violation{FaultKind::kIllegal, "a swizzled buffer resource"};
  }
  // Whether so many bytes at an offset are inside; `index` counts only for structured buffers.
  bool holds(std::uint64_t offset, std::uint32_t index, bool indexed, unsigned bytes) const {
    if (stride != 0 && indexed) return index < num_records;
    return offset <= num_records && bytes <= num_records - offset;
  }
};

}  // namespace msa_ops::emulator::gfx950

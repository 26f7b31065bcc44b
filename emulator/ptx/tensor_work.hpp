// What instructions of the fifth-generation tensor cores have in common.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>

#include "addresses.hpp"
#include "aligned.hpp"
#include "warp.hpp"

namespace msa_ops::emulator::ptx {

struct TensorAddress {
  unsigned lane, column;
};

// Lane in bits 16 to 29, column in bits 0 to 15; the two bits above belong to scale factors.
inline TensorAddress tensor_address(const PtxWarp& warp, const Operand& operand, unsigned lane) {
  const auto value = static_cast<std::uint32_t>(warp.value(operand, lane)) + operand.addend;
  return {value >> 16 & 0x3fff, value & 0xffff};
}

// Of an instruction that all lanes execute with one address.
inline TensorAddress common_tensor_address(const PtxWarp& warp, const Operand& operand) {
  const TensorAddress first = tensor_address(warp, operand, 0);
  for (unsigned lane = 1; lane < kLanes; ++lane) {
    const TensorAddress other = tensor_address(warp, operand, lane);
    if (other.lane != first.lane || other.column != first.column) {
      throw Violation{FaultKind::kTensorMemory, "the address in tensor memory differs between lanes",
                      static_cast<int>(lane)};
    }
  }
  return first;
}

inline std::uint32_t common_number(const PtxWarp& warp, const Operand& operand, const char* what) {
  const auto first = static_cast<std::uint32_t>(warp.value(operand, 0));
  for (unsigned lane = 1; lane < kLanes; ++lane) {
    if (static_cast<std::uint32_t>(warp.value(operand, lane)) != first) {
      throw Violation{FaultKind::kTensorMemory, std::string(what) + " differs between lanes", static_cast<int>(lane)};
    }
  }
  return first;
}

// A kernel uses one size of CTA group throughout.
inline void use_cta_group(PtxWarp& warp, unsigned group) {
  warp.block().tensor_memory().use_group(group);
  if (group == 2 && (warp.block().cluster().size() % 2 != 0)) {
    throw Violation{FaultKind::kTensorMemory, "cta_group::2 in a cluster of " +
                                                  std::to_string(warp.block().cluster().size()) + " blocks"};
  }
}

// Elements of less than 8 bits fill a byte each in tensor memory (but for kinds mxf4 and mxf4nvf4): those of 4 bits are in
// its middle, as mma.sync wants them in registers, those of 6 bits at its low end. That tensor memory is like registers
// here is an assumption; tcgen05.cp and tcgen05.mma agree on it.
constexpr unsigned shift_in_byte(unsigned bits) { return bits == 4 ? 2 : 0; }

// Moves the rows of each 32 lanes of the range down by one: lane r takes what lane r + 1 has, and the last one keeps what
// it has. So PTX's words are read by two independent models of the instruction, one of which was compared with a B200.
inline void shift_down(ThreadBlock& block, const TensorMemory::Range& range, AccessId access, Actor pipe) {
  TensorMemory& memory = block.tensor_memory();
  memory.will_read(range, access, pipe);
  for (unsigned first = range.lane; first < range.lane + range.lanes; first += 32) {
    memory.will_write({first, 31, range.column, range.columns}, access, pipe);
    for (unsigned lane = first; lane < first + 31; ++lane) {
      std::memcpy(memory.lane(lane) + range.column, memory.lane(lane + 1) + range.column, range.columns * 4);
    }
  }
}

// The other block of a pair.
inline ThreadBlock& peer_of(PtxWarp& warp) { return warp.block().cluster().block(warp.block().rank() ^ 1U); }

// The pipeline in which the warp's copies into tensor memory and its products happen one after the other; an access
// of the work that the next commit covers.
inline Actor tensor_pipe(PtxWarp& warp) {
  return warp.ordering().actor(warp.actor_warp(), Ordering::Queue::kMatrix);
}
inline AccessId pipe_access(PtxWarp& warp, unsigned lane) {
  TensorWork& work = warp.tensor_work();
  if (lane != work.lane && work.ends_with > work.commits) ++work.commits;
  work.lane = lane;
  work.ends_with = work.of_lane[lane] = work.commits + 1;
  return warp.ordering().of_work(tensor_pipe(warp), work.ends_with, false);
}

}  // namespace msa_ops::emulator::ptx

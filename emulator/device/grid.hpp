// A launch: all thread blocks of a grid.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "counters.hpp"
#include "global_memory.hpp"
#include "program.hpp"

namespace msa_ops::emulator {

struct LaunchShape {
  std::array<unsigned, 3> grid;
  std::array<unsigned, 3> block;
  std::size_t dynamic_shared_memory = 0;  // bytes
};

// Limits of a launch that every chip of the family shares, and the shared memory of one block.
struct DeviceLimits {
  std::array<unsigned, 3> grid;
  std::array<unsigned, 3> block;
  unsigned threads_a_block;
  std::size_t shared_memory_a_block;  // bytes, with opt-in
};

// Runs the blocks one after the other, x fastest; adds to `counters` at the end. `max_instructions` bounds the warp
// instructions of the whole launch. Throws std::invalid_argument for a shape over the limits, and Fault.
void run_grid(const Program& program, const LaunchShape& shape, const DeviceLimits& limits, const GlobalMemory& global,
              std::uint64_t max_instructions, Counters& counters);

}  // namespace msa_ops::emulator

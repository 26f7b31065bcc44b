#include "grid.hpp"

#include <stdexcept>
#include <string>

#include "thread_block.hpp"

namespace msa_ops::emulator {
namespace {

void check(const char* what, std::uint64_t value, std::uint64_t least, std::uint64_t most) {
  if (value < least || value > most) {
    throw std::invalid_argument(std::string(what) + ": " + std::to_string(value) + "; accepted: " +
                                std::to_string(least) + " to " + std::to_string(most));
  }
}

}  // namespace

void run_grid(const Program& program, const LaunchShape& shape, const DeviceLimits& limits, const GlobalMemory& global,
              std::uint64_t max_instructions, Counters& counters) {
  constexpr std::array<const char*, 3> kGridNames{"grid x", "grid y", "grid z"};
  constexpr std::array<const char*, 3> kBlockNames{"block x", "block y", "block z"};
  std::uint64_t threads = 1;
  for (unsigned i = 0; i < 3; ++i) {
    check(kGridNames[i], shape.grid[i], 1, limits.grid[i]);
    check(kBlockNames[i], shape.block[i], 1, limits.block[i]);
    threads *= shape.block[i];
  }
  check("threads a block", threads, 1, limits.threads_a_block);
  check("dynamic shared memory", shape.dynamic_shared_memory, 0, limits.shared_memory_a_block);
  check("shared memory", shape.dynamic_shared_memory + program.static_shared_memory(), 0, limits.shared_memory_a_block);
  check("max_instructions", max_instructions, 1, UINT64_MAX);
  ThreadBlock block(program, shape, global);
  for (unsigned z = 0; z < shape.grid[2]; ++z) {
    for (unsigned y = 0; y < shape.grid[1]; ++y) {
      for (unsigned x = 0; x < shape.grid[0]; ++x) block.run({x, y, z}, max_instructions);
    }
  }
  block.add_to(counters);
  ++counters.launches;
}

}  // namespace msa_ops::emulator

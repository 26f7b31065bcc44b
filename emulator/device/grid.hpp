// A launch: all thread blocks of a grid, in clusters.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "chip.hpp"
#include "counters.hpp"
#include "global_memory.hpp"
#include "program.hpp"

namespace msa_ops::emulator {

struct LaunchShape {
  std::array<unsigned, 3> grid;
  std::array<unsigned, 3> block;
  std::size_t dynamic_shared_memory = 0;  // bytes
  std::array<unsigned, 3> cluster{1, 1, 1};  // blocks
  bool asks_for_cluster = false;    // the launch says how large clusters are
  bool has_clusters = false;        // the launch or the kernel does
  bool may_be_not_portable = false;  // clusters of more than 8 blocks are allowed

  unsigned cluster_blocks() const { return cluster[0] * cluster[1] * cluster[2]; }
  unsigned threads() const { return block[0] * block[1] * block[2]; }
};

struct RunOptions {
  std::uint64_t max_instructions = UINT64_MAX;  // warp instructions of the whole launch
  // Without a seed warps take turns in order and asynchronous work happens as late as it can; with one, turns and
  // their lengths, the blocks that are resident and the moments of asynchronous work are drawn from it.
  std::optional<std::uint64_t> seed{};
  // The order in which matrix instructions add products: without a seed k ascending, with one drawn from it.
  std::optional<std::uint64_t> sum_order{};
  // Of the host, over which clusters are spread. With one the result is the same in every run.
  unsigned threads = 1;
};

// One launch on one device.
struct GridLaunch {
  const Program* program;
  const LaunchShape* shape;
  const Chip* chip;
  const GlobalMemory* global;  // what the device may use: its own memory, and that of peers
  Counters* counters;
};

// Runs launches on several devices at the same time; each may wait for what others do in memory that they share.
void run_grids(const std::vector<GridLaunch>& launches, const RunOptions& options);

// Runs the blocks of a launch; adds to `counters` at the end. Clusters start in order, x fastest; as many are resident
// as the chip holds, and a further one starts when those that run wait for others or when they have ended. Throws
// std::invalid_argument for a shape over the limits of the chip, and Fault.
void run_grid(const Program& program, const LaunchShape& shape, const Chip& chip, const GlobalMemory& global,
              const RunOptions& options, Counters& counters);

}  // namespace msa_ops::emulator

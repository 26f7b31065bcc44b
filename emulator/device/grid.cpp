#include "grid.hpp"

#include <algorithm>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "cluster.hpp"

namespace msa_ops::emulator {
namespace {

constexpr std::uint64_t kVisit = 1U << 17;  // warp instructions of a cluster before another one gets a turn

void check(const char* what, std::uint64_t value, std::uint64_t least, std::uint64_t most) {
  if (value < least || value > most) {
    throw std::invalid_argument(std::string(what) + ": " + std::to_string(value) + "; accepted: " +
                                std::to_string(least) + " to " + std::to_string(most));
  }
}

void check_shape(const Program& program, const LaunchShape& shape, const Chip& chip) {
  constexpr std::array<const char*, 3> kGridNames{"grid x", "grid y", "grid z"};
  constexpr std::array<const char*, 3> kBlockNames{"block x", "block y", "block z"};
  constexpr std::array<const char*, 3> kClusterNames{"cluster x", "cluster y", "cluster z"};
  std::uint64_t threads = 1;
  for (unsigned i = 0; i < 3; ++i) {
    check(kGridNames[i], shape.grid[i], 1, chip.grid[i]);
    check(kBlockNames[i], shape.block[i], 1, chip.block[i]);
    check(kClusterNames[i], shape.cluster[i], 1, chip.cluster_blocks);
    if (shape.grid[i] % shape.cluster[i] != 0) {
      throw std::invalid_argument(std::string(kGridNames[i]) + ": " + std::to_string(shape.grid[i]) +
                                  "; accepted: multiples of the cluster's " + std::to_string(shape.cluster[i]));
    }
    threads *= shape.block[i];
  }
  check("threads a block", threads, 1, chip.threads_a_block);
  check("blocks a cluster", shape.cluster_blocks(), 1, chip.cluster_blocks);
  check("dynamic shared memory", shape.dynamic_shared_memory, 0, chip.shared_memory_a_block);
  check("static shared memory", program.static_shared_memory(), 0, chip.static_shared_memory);
  check("shared memory", shape.dynamic_shared_memory + program.static_shared_memory(), 0, chip.shared_memory_a_block);
}

// As many clusters as the chip holds at once.
std::size_t most_resident(const Program& program, const LaunchShape& shape, const Chip& chip) {
  const std::size_t shared = shape.dynamic_shared_memory + program.static_shared_memory() + 1024;
  const std::size_t blocks = std::min({std::size_t{chip.blocks_a_multiprocessor},
                                       std::size_t{chip.threads_a_multiprocessor / shape.threads()},
                                       chip.shared_memory_a_multiprocessor / shared});
  return std::max<std::size_t>(1, std::max<std::size_t>(1, blocks) * chip.multiprocessors / shape.cluster_blocks());
}

}  // namespace

void run_grid(const Program& program, const LaunchShape& shape, const Chip& chip, const GlobalMemory& global,
              const RunOptions& options, Counters& counters) {
  check_shape(program, shape, chip);
  check("max_instructions", options.max_instructions, 1, UINT64_MAX);
  std::uint64_t budget = options.max_instructions;
  WorkList work(shape);
  std::vector<std::unique_ptr<Cluster>> all;
  std::vector<Cluster*> idle, resident;
  const std::size_t most = most_resident(program, shape, chip);
  std::mt19937_64 generator(options.seed.value_or(0));
  const auto start_one = [&] {
    std::array<unsigned, 3> first{};
    if (resident.size() == most || !work.take(first)) return false;
    if (idle.empty()) {
      RunOptions own = options;
      if (own.seed) own.seed = generator();
      all.push_back(std::make_unique<Cluster>(program, shape, chip, global, own, work));
      idle.push_back(all.back().get());
    }
    Cluster* cluster = idle.back();
    idle.pop_back();
    cluster->start(first);
    resident.push_back(cluster);
    return true;
  };
  for (std::size_t at = 0; start_one() || !resident.empty();) {
    if (at >= resident.size()) at = 0;
    std::uint64_t visit = kVisit;
    if (options.seed) {
      // A few clusters at once, in turns of any length.
      while (resident.size() < std::min<std::size_t>(most, 3) && start_one()) {}
      at = static_cast<std::size_t>(generator() % resident.size());
      visit = std::uint64_t{64} << generator() % 10;
    }
    if (resident[at]->run(visit, budget)) {
      idle.push_back(resident[at]);
      resident.erase(resident.begin() + static_cast<std::ptrdiff_t>(at));
    } else {
      ++at;
    }
  }
  for (const auto& cluster : all) cluster->add_to(counters);
  ++counters.launches;
}

}  // namespace msa_ops::emulator

#include "grid.hpp"

#include <algorithm>
#include <atomic>
#include <cfenv>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "cluster.hpp"
#include "interrupt.hpp"
#include "progress.hpp"

namespace msa_ops::emulator {
namespace {

constexpr auto kInterruptible = std::chrono::milliseconds(50);  // between two looks at whether to end
constexpr auto kPause = std::chrono::microseconds(20);
constexpr unsigned kDescribed = 64;  // warps in the message of a deadlock, of each thread of the host
constexpr std::uint64_t kVisit = 1U << 17;  // warp instructions of a cluster before another one gets a turn

void check(const char* what, std::uint64_t value, std::uint64_t least, std::uint64_t most) {
  if (value < least || value > most) {
    throw std::invalid_argument(std::string(what) + ": " + std::to_string(value) + "; accepted: " +
                                std::to_string(least) + " to " + std::to_string(most));
  }
}

// Blocks that a multiprocessor holds at once.
std::size_t blocks_a_multiprocessor(const Program& program, const LaunchShape& shape, const Chip& chip) {
  const std::size_t shared = shape.dynamic_shared_memory + program.static_shared_memory() + 1024;
  const std::size_t blocks = std::min({std::size_t{chip.blocks_a_multiprocessor},
                                       std::size_t{chip.threads_a_multiprocessor / shape.threads()},
                                       chip.shared_memory_a_multiprocessor / shared});
  return std::max<std::size_t>(1, blocks);
}

// As many clusters as the chip holds at once.
std::size_t most_resident(const Program& program, const LaunchShape& shape, const Chip& chip) {
  return std::max<std::size_t>(1, blocks_a_multiprocessor(program, shape, chip) * chip.multiprocessors / shape.cluster_blocks());
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
  if (shape.cluster_blocks() > chip.portable_cluster_blocks && !shape.may_be_not_portable) {
    throw std::invalid_argument("cluster: " + std::to_string(shape.cluster_blocks()) + " blocks; accepted: 1 to " +
                                std::to_string(chip.portable_cluster_blocks) +
                                " unless the kernel is allowed clusters that are not portable");
  }
  check("dynamic shared memory", shape.dynamic_shared_memory, 0, chip.shared_memory_a_block);
  check("static shared memory", program.static_shared_memory(), 0, chip.static_shared_memory);
  check("shared memory", shape.dynamic_shared_memory + program.static_shared_memory(), 0, chip.shared_memory_a_block);
  const std::size_t together = std::min(chip.multiprocessors, chip.multiprocessors_a_cluster);
  const std::size_t held = together * blocks_a_multiprocessor(program, shape, chip);
  if (shape.cluster_blocks() > held) {
    throw std::invalid_argument("cluster: " + std::to_string(shape.cluster_blocks()) + " blocks of " +
                                std::to_string(shape.threads()) + " threads and " +
                                std::to_string(shape.dynamic_shared_memory + program.static_shared_memory()) +
                                " bytes of shared memory; the chip holds " + std::to_string(held) + " at once");
  }
}


// Of so many clusters, those that one thread of the host runs: each at least one.
std::size_t share_of(std::size_t worker, std::size_t clusters, std::size_t threads) {
  return std::max<std::size_t>(1, clusters / threads + (worker < clusters % threads ? 1 : 0));
}

// Watches what the launches may write, in as much memory as this leaves of that of resident blocks; null if the instruction
// set has rules of its own.
std::unique_ptr<GlobalOrder> order_of(const std::vector<GridLaunch>& launches, const RunOptions& options) {
  // A block's shared memory, tensor memory, registers and records take the rest of 64 MB.
  constexpr std::size_t kBytesABlock = std::size_t{48} << 20, kAtLeast = std::size_t{8} << 20;
  std::size_t bytes = 0;
  GlobalOrder::Ranges all;
  for (const GridLaunch& launch : launches) {
    if (!launch.program->orders_global_memory()) return nullptr;
    const std::size_t grid = std::size_t{launch.shape->grid[0]} * launch.shape->grid[1] * launch.shape->grid[2];
    const std::size_t blocks =
        std::min(grid, most_resident(*launch.program, *launch.shape, *launch.chip) * launch.shape->cluster_blocks());
    const std::size_t local = 2 * launch.program->local_memory() * launch.shape->threads();  // and what is written of it
    bytes += blocks * (kBytesABlock - std::min(kBytesABlock - kAtLeast, local));
    for (const Allocation& one : launch.global->allocations()) {
      if (!one.writable || one.bytes == 0) continue;
      if (one.copies.empty()) all.emplace_back(one.address, one.address + one.bytes);
      for (const auto copy : one.copies) all.emplace_back(copy, copy + one.bytes);
    }
  }
  std::sort(all.begin(), all.end());
  GlobalOrder::Ranges watched;
  for (const auto& [first, end] : all) {
    if (!watched.empty() && first <= watched.back().second) watched.back().second = std::max(watched.back().second, end);
    else watched.emplace_back(first, end);
  }
  return std::make_unique<GlobalOrder>(std::move(watched), bytes, options.threads > 1);
}

// The clusters of one launch that one thread of the host runs.
class GridRun {
 public:
  GridRun(const GridLaunch& launch, const RunOptions& options, WorkList& work, GlobalOrder* order, unsigned device,
          std::uint64_t seed, std::size_t worker, Progress::Worker& progress)
      : launch_(launch),
        order_(order),
        device_(device),
        options_(options),
        work_(work),
        progress_(progress),
        global_(*launch.global),
        most_(share_of(worker, most_resident(*launch.program, *launch.shape, *launch.chip), options.threads)),
        generator_(seed) {
    if (options.threads > 1) global_.share();
    if (options.seed) global_.draw(seed);
  }

  // Runs one cluster for a while; false if all that it could take have ended.
  bool step(std::uint64_t& budget) {
    if (!start_one() && resident_.empty()) return false;
    if (at_ >= resident_.size()) at_ = 0;
    std::uint64_t visit = kVisit;
    if (options_.seed) {
      // A few clusters at once, in turns of any length.
      while (resident_.size() < std::min<std::size_t>(most_, 3) && start_one()) {}
      at_ = static_cast<std::size_t>(generator_() % resident_.size());
      visit = std::uint64_t{64} << generator_() % 10;
    }
    if (resident_[at_]->run(visit, budget)) {
      idle_.push_back(resident_[at_]);
      resident_.erase(resident_.begin() + static_cast<std::ptrdiff_t>(at_));
    } else {
      ++at_;
    }
    return true;
  }

  void add_to(Counters& counters) const {
    for (const auto& cluster : all_) cluster->add_to(counters);
  }
  const GlobalMemory& global() const { return global_; }
  // After a step in which no cluster started.
  bool rests(std::uint64_t total) const {
    return std::all_of(resident_.begin(), resident_.end(), [&](const Cluster* one) { return one->rests(total); });
  }
  bool release_lanes() {
    bool some = false;
    for (Cluster* one : resident_) some = one->release_lanes(kNever) || some;
    return some;
  }
  void describe(std::string& text, Place& place, unsigned& most, bool names_device) const {
    const std::string who = names_device ? "device " + std::to_string(device_) + " " : "";
    for (const Cluster* one : resident_) one->describe(text, place, most, who, true);
  }

 private:
  bool start_one() {
    std::array<unsigned, 3> first{};
    if (resident_.size() >= most_ || !work_.take(first)) return false;
    if (idle_.empty()) {
      RunOptions own = options_;
      if (own.seed) own.seed = generator_();
      all_.push_back(
          std::make_unique<Cluster>(*launch_.program, *launch_.shape, *launch_.chip, global_, own, work_, order_,
                                    device_, progress_));
      idle_.push_back(all_.back().get());
    }
    Cluster* cluster = idle_.back();
    idle_.pop_back();
    cluster->start(first);
    resident_.push_back(cluster);
    return true;
  }

  const GridLaunch& launch_;
  GlobalOrder* order_;
  unsigned device_;
  const RunOptions& options_;
  WorkList& work_;
  Progress::Worker& progress_;
  GlobalMemory global_;
  std::size_t most_;
  std::mt19937_64 generator_;
  std::vector<std::unique_ptr<Cluster>> all_;
  std::vector<Cluster*> idle_, resident_;
  std::size_t at_ = 0;
};

// Lanes compute under the default floating-point environment, whatever the caller's is.
class DefaultArithmetic {
 public:
  DefaultArithmetic() {
    std::fegetenv(&before_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultArithmetic() { std::fesetenv(&before_); }
  DefaultArithmetic(const DefaultArithmetic&) = delete;
  DefaultArithmetic& operator=(const DefaultArithmetic&) = delete;

 private:
  std::fenv_t before_{};
};

}  // namespace

void run_grids(const std::vector<GridLaunch>& launches, const RunOptions& options) {
  check("max_instructions", options.max_instructions, 1, UINT64_MAX);
  check("threads", options.threads, 1, 1024);
  std::vector<std::unique_ptr<WorkList>> work;
  for (const GridLaunch& launch : launches) {
    check_shape(*launch.program, *launch.shape, *launch.chip);
    work.push_back(std::make_unique<WorkList>(*launch.shape));
  }
  std::vector<GlobalMemory> totals;  // with what the threads' copies have counted
  for (const GridLaunch& launch : launches) totals.push_back(launch.global->with({}));
  const std::unique_ptr<GlobalOrder> order = order_of(launches, options);
  Progress progress(options.threads, host_may_store());
  std::mutex mutex;  // of totals, counters and failure
  std::exception_ptr failure;
  std::atomic<bool> stop{false};
  const auto run = [&](std::uint64_t worker) {
    const DefaultArithmetic arithmetic;
    try {
      std::uint64_t budget = options.max_instructions;
      Progress::Worker& mine = progress.worker(static_cast<std::size_t>(worker));
      std::vector<std::unique_ptr<GridRun>> runs;
      for (std::size_t i = 0; i < launches.size(); ++i) {
        const std::uint64_t seed = options.seed.value_or(0) + worker * 1'000'003 + i * 7919;
        runs.push_back(std::make_unique<GridRun>(launches[i], options, *work[i], order.get(),
                                                 static_cast<unsigned>(i), seed, static_cast<std::size_t>(worker),
                                                 mine));
      }
      const auto describe = [&](std::string& text, Place& place) {
        unsigned most = kDescribed;
        for (const auto& one : runs) one->describe(text, place, most, launches.size() > 1);
        if (most == 0) text += "; and maybe others";
        for (std::size_t i = 0; worker == 0 && i < work.size(); ++i) {
          const std::uint64_t left = work[i]->left() * launches[i].shape->cluster_blocks();
          if (left > 0) text += "; " + std::to_string(left) + " blocks have not started, as the chip has no room for them";
        }
      };
      const auto release = [&] {
        bool some = false;
        for (const auto& one : runs) some = one->release_lanes() || some;
        return some;
      };
      for (bool some = true; some && !stop;) {
        if (worker == 0) check_interrupt();
        some = false;
        const std::uint64_t before = mine.total();
        for (const auto& one : runs) some = one->step(budget) || some;
        if (!some || before != mine.total()) continue;
        if (!std::all_of(runs.begin(), runs.end(), [&](const auto& one) { return one->rests(before); })) continue;
        progress.rest(mine, before, describe, release);
        std::this_thread::sleep_for(kPause);  // the others may go on
      }
      progress.end(mine);
      const std::lock_guard<std::mutex> lock(mutex);
      for (std::size_t i = 0; i < launches.size(); ++i) {
        runs[i]->add_to(*launches[i].counters);
        totals[i].merge(runs[i]->global());
      }
    } catch (...) {
      const std::lock_guard<std::mutex> lock(mutex);
      if (!failure) failure = std::current_exception();
      stop = true;
    }
  };
  std::vector<std::thread> threads;
  std::condition_variable ended;
  unsigned running = options.threads - 1;
  try {
    for (unsigned worker = 1; worker < options.threads; ++worker) {
      threads.emplace_back([&, worker] {
        run(worker);
        const std::lock_guard<std::mutex> lock(mutex);
        --running;
        ended.notify_one();
      });
    }
  } catch (...) {  // the host has no more threads
    stop = true;
    for (std::thread& thread : threads) thread.join();
    throw;
  }
  run(0);
  std::unique_lock<std::mutex> lock(mutex);
  while (!ended.wait_for(lock, kInterruptible, [&] { return running == 0; })) {
    if (stop) continue;
    lock.unlock();
    std::exception_ptr interrupted;
    try {
      check_interrupt();
    } catch (...) {
      interrupted = std::current_exception();
    }
    lock.lock();
    if (!interrupted) continue;
    if (!failure) failure = interrupted;
    stop = true;
  }
  lock.unlock();
  for (std::thread& thread : threads) thread.join();
  if (failure) std::rethrow_exception(failure);
  for (std::size_t i = 0; i < launches.size(); ++i) {
    totals[i].add_to(*launches[i].counters);
    launches[i].global->note_launch(totals[i]);
    launches[i].counters->last_writes = launches[i].global->last_writes();
    ++launches[i].counters->launches;
  }
}

void run_grid(const Program& program, const LaunchShape& shape, const Chip& chip, const GlobalMemory& global,
              const RunOptions& options, Counters& counters) {
  run_grids({{&program, &shape, &chip, &global, &counters}}, options);
}

}  // namespace msa_ops::emulator

// A cluster of thread blocks: what they share, and all their warps taking turns.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <vector>

#include "async.hpp"
#include "barriers.hpp"
#include "global_memory.hpp"
#include "global_order.hpp"
#include "grid.hpp"
#include "ordering.hpp"
#include "program.hpp"
#include "thread_block.hpp"

namespace msa_ops::emulator {

// Clusters of the launch that have not started, for those that ask for one (cluster launch control) and the grid.
class WorkList {
 public:
  explicit WorkList(const LaunchShape& shape);
  // The index of the first block of the next cluster; false if all have started.
  bool take(std::array<unsigned, 3>& first_block);

 private:
  const LaunchShape& shape_;
  std::array<unsigned, 3> clusters_;
  std::atomic<std::uint64_t> next_{0};
  std::uint64_t count_ = 1;
};

class Cluster {
 public:
  Cluster(const Program& program, const LaunchShape& shape, const Chip& chip, const GlobalMemory& global,
          const RunOptions& options, WorkList& work, GlobalOrder* order, unsigned device);

  // At the blocks from this index on.
  void start(std::array<unsigned, 3> first_block);
  // Runs for about so many warp instructions; true if all blocks have ended. `budget` is what the launch may still
  // execute; it is reduced.
  bool run(std::uint64_t instructions, std::uint64_t& budget);
  void add_to(Counters& counters) const;

  ThreadBlock& block(unsigned rank) { return *blocks_[rank]; }
  unsigned size() const { return static_cast<unsigned>(blocks_.size()); }
  Ordering& ordering() { return ordering_; }
  GlobalWatch& watch() { return watch_; }
  AsyncQueue& async() { return async_; }
  ClusterBarrier& barrier() { return barrier_; }
  WorkList& work() { return work_; }
  const Chip& chip() const { return chip_; }
  std::optional<std::uint64_t> sum_order() const { return sum_order_; }
  std::uint64_t executed() const { return executed_; }  // warp instructions, as a clock
  const std::array<unsigned, 3>& first_block() const { return first_; }
  // With a seed: whether something that may fail, as a wait at an mbarrier, does so now; one in four.
  bool draws_failure() { return random_ && failures_() % 4 == 0; }
  // Something happened that another warp may wait for.
  void note_event() { ++events_; }

 private:
  bool round(std::uint64_t& left, std::uint64_t& budget);  // false if no warp could go on
  bool run_warp(ThreadBlock& block, unsigned warp, std::uint64_t& left, std::uint64_t& budget);
  void check_remote_uses(ThreadBlock& block);  // which has just ended
  void time_out();
  [[noreturn]] void report_deadlock() const;
  void forget_old_accesses();

  const Program& program_;
  const LaunchShape& shape_;
  const Chip& chip_;
  WorkList& work_;
  Ordering ordering_;
  GlobalWatch watch_;
  const unsigned device_;
  AsyncQueue async_;
  ClusterBarrier barrier_;
  std::vector<std::unique_ptr<ThreadBlock>> blocks_;
  std::array<unsigned, 3> first_{};
  unsigned live_warps_ = 0;
  std::uint64_t executed_ = 0;
  std::uint64_t events_ = 0;
  std::uint64_t events_at_time_out_ = 0;
  unsigned time_outs_ = 0;
  unsigned rounds_without_work_ = 0;
  bool all_yield_ = false;  // every warp that ran in the last round polls
  bool random_ = false;
  std::optional<std::uint64_t> sum_order_;
  std::mt19937_64 generator_;
  std::minstd_rand failures_;  // apart from the turns
};

}  // namespace msa_ops::emulator

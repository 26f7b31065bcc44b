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
#include "progress.hpp"
#include "thread_block.hpp"

namespace msa_ops::emulator {

// Clusters of the launch that have not started, for those that ask for one (cluster launch control) and the grid.
class WorkList {
 public:
  explicit WorkList(const LaunchShape& shape);
  // The index of the first block of the next cluster; false if all have started.
  bool take(std::array<unsigned, 3>& first_block);
  std::uint64_t left() const { return next_ < count_ ? count_ - next_ : 0; }

 private:
  const LaunchShape& shape_;
  std::array<unsigned, 3> clusters_;
  std::atomic<std::uint64_t> next_{0};
  std::uint64_t count_ = 1;
};

class Cluster {
 public:
  Cluster(const Program& program, const LaunchShape& shape, const Chip& chip, const GlobalMemory& global,
          const RunOptions& options, WorkList& work, GlobalOrder* order, unsigned device,
          Progress::Worker& progress);

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
  std::uint64_t elapsed() const { return executed_ + rested_; }  // the same, with turns that it did not need
  const std::array<unsigned, 3>& first_block() const { return first_; }
  // With a seed: whether something that may fail, as a wait at an mbarrier, does so now; one in four.
  bool draws_failure() { return random_ && failures_() % 4 == 0; }
  // What its warps share, or memory that others share with them, is not what it was.
  void note_change() {
    ++changes_;
    progress_.note();
  }
  Changes changes() const { return {changes_, progress_.total()}; }
  std::uint64_t own_changes() const { return changes_; }
  // No warp goes on while the launch's count of changes is this one.
  bool rests(std::uint64_t total) const { return rests_at_ == total; }
  // Lanes that have waited for others of their warp since then (of `elapsed`) go on. False if there are none.
  bool release_lanes(std::uint64_t last);
  // It has come to that: the kernel is one of those that need it, and they should not wait long each time.
  bool has_lanes_apart() const { return has_lanes_apart_; }
  // Adds what each warp does, of at most `most`, which is reduced; `place` is set if it was not. `names_block` by its index.
  void describe(std::string& text, Place& place, unsigned& most, const std::string& who, bool names_block) const;

 private:
  bool round(std::uint64_t& left, std::uint64_t& budget);  // false if no warp could go on
  bool run_warp(ThreadBlock& block, unsigned warp, std::uint64_t& left, std::uint64_t& budget);
  void check_remote_uses(ThreadBlock& block);  // which has just ended
  // Whether the cluster has to wait for other ones, after a round in which some warp went on, or none did.
  bool rests_after_round();
  void finish_work();  // one asynchronous operation
  bool rests_without_work();
  bool rest(Rest known, std::uint64_t total);  // the same, with what is known of all its warps
  // Of the warps together. `may_end`: there is a wait that may end without success, of a warp of which no more is known.
  Rest rest_of_warps(const Changes& now, bool& may_end) const;
  void end_waits(std::uint64_t last);  // that began then or earlier and may end without success
  void end_long_waits();
  [[noreturn]] void report_deadlock() const;
  void forget_old_accesses();

  const Program& program_;
  const LaunchShape& shape_;
  const Chip& chip_;
  WorkList& work_;
  Ordering ordering_;
  GlobalWatch watch_;
  const unsigned device_;
  Progress::Worker& progress_;
  AsyncQueue async_;
  ClusterBarrier barrier_;
  std::vector<std::unique_ptr<ThreadBlock>> blocks_;
  std::array<unsigned, 3> first_{};
  unsigned live_warps_ = 0;
  std::uint64_t executed_ = 0, rested_ = 0;
  unsigned rounds_without_work_ = 0;
  std::uint64_t changes_ = 0, changes_before_ = 0, rests_at_ = kNever;
  std::uint64_t next_look_ = 0;  // of end_long_waits
  unsigned quiet_rounds_ = 0;
  bool has_lanes_apart_ = false;
  bool all_yield_ = false;  // every warp that ran in the last round polls
  bool random_ = false;
  std::optional<std::uint64_t> sum_order_;
  std::mt19937_64 generator_;
  std::minstd_rand failures_;  // apart from the turns
};

}  // namespace msa_ops::emulator

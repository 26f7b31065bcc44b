// A thread block: its memory, its barriers, and its warps.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "barriers.hpp"
#include "global_memory.hpp"
#include "grid.hpp"
#include "mbarrier.hpp"
#include "program.hpp"
#include "register_pool.hpp"
#include "shared_memory.hpp"
#include "tensor_memory.hpp"

namespace msa_ops::emulator {

class Cluster;

class ThreadBlock {
 public:
  ThreadBlock(const Program& program, const LaunchShape& shape, const GlobalMemory& global, Cluster& cluster,
              unsigned rank);

  void start(std::array<unsigned, 3> index);
  void add_to(Counters& counters) const;

  const LaunchShape& shape() const { return shape_; }
  const std::array<unsigned, 3>& index() const { return index_; }
  const GlobalMemory& global() const {
    ++global_uses_;
    global_.set_early(early_);
    return global_;
  }
  std::uint64_t global_uses() const { return global_uses_; }  // of global memory, by its warps, at least
  const GlobalMemory& global_for_prefetch() const {  // which changes nothing
    global_.set_early(false);
    return global_;
  }
  bool is_early() const { return early_; }  // it has not waited for earlier launches, which may still run
  // They end when the warp gets its next turn, so that others of the block are still early in this one. False if they
  // have ended.
  bool wait_for_earlier_launches(unsigned warp) { return early_ && (waits_[warp].for_launches = true); }
  void begin_turn(unsigned warp) {
    Wait& wait = waits_[warp];
    early_ = early_ && !wait.for_launches;
    if (wait.kind == Wait::Kind::kPoll) wait.kind = Wait::Kind::kNone;
  }
  SharedMemory& shared() { return shared_; }
  TensorMemory& tensor_memory() { return tensor_memory_; }
  const TensorMemory& tensor_memory() const { return tensor_memory_; }
  Barriers& barriers() { return barriers_; }
  RegisterPool& register_pool() { return register_pool_; }
  Mbarriers& mbarriers() { return mbarriers_; }
  Cluster& cluster() { return cluster_; }
  unsigned rank() const { return rank_; }  // in the cluster
  unsigned num_warps() const { return static_cast<unsigned>(warps_.size()); }
  // Number of a warp in the ordering of the cluster.
  unsigned actor_warp(unsigned warp) const { return rank_ * num_warps() + warp; }
  bool ended() const { return live_ == 0; }

  // ---- shared memory of the cluster: an address names its block (Program::rank_shift)
  // The block that holds the address. Violation if the cluster has none, or if that block has ended.
  ThreadBlock& holder(std::uint64_t address, int lane);

  // ---- waiting: the warp's turn ends, and it goes on where it stands when this is over
  void wait_for(unsigned warp, const Mbarrier& barrier);
  void wait_for_cluster(unsigned warp);
  void wait_for_registers(unsigned warp, unsigned count);
  void poll(unsigned warp, bool still);  // it asks again each time it gets a turn; `still`: as in the turn before
  // Whether the wait of these lanes of the warp was ended although what they wait for has not happened; asking clears it.
  bool timed_out(unsigned warp, std::uint64_t lanes);

  // ---- for the cluster
  WarpProgram& warp(unsigned index) { return *warps_[index]; }
  const WarpProgram& warp(unsigned index) const { return *warps_[index]; }
  bool done(unsigned warp) const { return waits_[warp].is_done; }
  bool can_run(unsigned warp) const;
  bool polls(unsigned warp) const { return waits_[warp].kind == Wait::Kind::kPoll; }
  bool may_time_out(unsigned warp) const;
  bool waits(unsigned warp) const { return waits_[warp].kind != Wait::Kind::kNone || barriers_.waiting(warp); }
  std::uint64_t waits_since(unsigned warp) const { return waits_[warp].since; }  // of Cluster::elapsed
  void time_out(unsigned warp);
  void end(unsigned warp);
  std::string describe_wait(unsigned warp) const;

 private:
  struct Wait {
    enum class Kind { kNone, kMbarrier, kCluster, kPoll, kRegisters } kind = Kind::kNone;
    const Mbarrier* barrier = nullptr;
    std::uint64_t phase = 0;  // or number of registers
    std::uint64_t since = 0;
    std::uint64_t timed_out = 0;  // lanes
    bool is_done = false;
    bool for_launches = false;
  };

  void begin_wait(unsigned warp, Wait::Kind kind, const Mbarrier* barrier = nullptr, std::uint64_t phase = 0);

  const Program& program_;
  const LaunchShape& shape_;
  const GlobalMemory& global_;
  Cluster& cluster_;
  const unsigned rank_;
  SharedMemory shared_;
  TensorMemory tensor_memory_;
  Barriers barriers_;
  Mbarriers mbarriers_;
  RegisterPool register_pool_;
  std::array<unsigned, 3> index_{};
  std::vector<std::unique_ptr<WarpProgram>> warps_;
  mutable std::vector<Wait> waits_;
  mutable std::uint64_t global_uses_ = 0;
  unsigned live_ = 0;
  bool early_ = false;  // earlier launches may still run, as far as the block knows
};

}  // namespace msa_ops::emulator

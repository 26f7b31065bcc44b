// Whether a launch goes on: counts of the changes of what its warps share, and who cannot go on without one.
//
// A warp depends on its registers and on what it shares. One that comes to a state in which it has been before, while
// nothing shared has changed, is in an endless loop. When all warps wait or loop at the same counts, those are final.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "fault.hpp"

namespace msa_ops::emulator {

constexpr std::uint64_t kNever = UINT64_MAX;  // no count of changes

// What is known of a warp, or of a cluster: it may do something new; it does not as long as nothing of its cluster changes
// (it has not used global memory since); or as long as nothing of the launch does.
enum class Rest : std::uint8_t { kNone, kInCluster, kInLaunch };

// How much has changed, in all: what the warps of a cluster share, and what those of the launch do.
struct Changes {
  std::uint64_t cluster = kNever, launch = kNever;
};

// Whether other threads of the host may store while a launch runs that begins now, on this thread. Where the check has not
// been set, none may.
void set_host_check(bool (*check)());
bool host_may_store();

class Progress {
 public:
  // One thread of the host, which alone counts here. Each writes memory first and counts after it: whoever has read the
  // count has seen what it counts.
  class alignas(64) Worker {
   public:
    explicit Worker(Progress& all) : all_(all) {}
    void note() { changes_.store(changes_.load(std::memory_order_relaxed) + 1, std::memory_order_release); }
    std::uint64_t total() const { return all_.total(); }
    // False: loops that use global memory may be ended by the host, so that nothing is known of them.
    bool may_rest() const { return !all_.host_may_store_; }

   private:
    friend class Progress;
    Progress& all_;
    std::atomic<std::uint64_t> changes_{0};
    std::uint64_t rests_at_ = kNever;  // the total without whose change none of its warps goes on
    std::uint64_t apart_at_ = kNever;  // and at which no lanes of them wait for others of their warp
    bool has_ended_ = false;
    std::string text_;
    Place place_;
  };

  Progress(std::size_t workers, bool host_may_store);
  Worker& worker(std::size_t index) { return *workers_[index]; }
  std::uint64_t total() const;
  // The worker has nothing left to run.
  void end(Worker& worker);
  // None of the worker's warps goes on while the total is this one; `describe(text, place)` says what each does, and
  // `release()` lets lanes go on that wait for others of their warp (WarpProgram::release_lanes). Throws Fault if the same
  // holds for all workers.
  template <typename Describe, typename Release>
  void rest(Worker& worker, std::uint64_t total, Describe describe, Release release) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (worker.rests_at_ != total) {
      worker.rests_at_ = total;
      worker.text_.clear();
      worker.place_ = {};
      describe(worker.text_, worker.place_);
    }
    if (!all_rest(&Worker::rests_at_, total)) return;
    if (worker.apart_at_ != total && release()) return worker.note();
    worker.apart_at_ = total;
    if (all_rest(&Worker::apart_at_, total)) report();
  }

 private:
  bool all_rest(std::uint64_t Worker::*at, std::uint64_t total) const;
  [[noreturn]] void report() const;

  const bool host_may_store_;
  std::mutex mutex_;  // of what workers say about themselves
  std::vector<std::unique_ptr<Worker>> workers_;
};

}  // namespace msa_ops::emulator

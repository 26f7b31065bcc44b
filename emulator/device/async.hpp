// Asynchronous operations: work that an instruction only starts.
//
// Whoever issues one says beforehand what it will read and write (SharedMemory::will_read, will_write, with an access
// made by Ordering::of_work), so that accesses too early are found whenever the work happens. The work itself happens
// as late as it can: when a warp waits for it, or when nothing else can go on; by option at random times.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <random>
#include <vector>

#include "fault.hpp"
#include "mbarrier.hpp"
#include "program.hpp"

namespace msa_ops::emulator {

class ThreadBlock;

class AsyncOperation {
 public:
  virtual ~AsyncOperation() = default;
  virtual void read() {}     // takes what is to be read out of memory; comes first
  virtual void write() = 0;  // and this makes it visible
};

// What the end of an operation does.
struct Signal {
  Mbarriers* owner = nullptr;
  Mbarrier* barrier = nullptr;
  std::int64_t bytes = 0;   // that arrive; with `arrives` one arrival instead
  bool arrives = false;
  Knowledge knowledge{};    // that an arrival hands on
};

// The instruction that started it.
struct Origin {
  const Program* program = nullptr;
  std::uint32_t pc = 0;
  std::array<unsigned, 3> block{};
  int warp = -1;
  Place place() const;
};

struct Issue {
  std::unique_ptr<AsyncOperation> operation;
  std::vector<Signal> signals{};
  // For work that a warp waits for by groups: its key says whose, its number which group.
  std::uint64_t queue = 0;  // 0: none
  std::uint64_t group = 0;
  std::uint32_t chain = 0;  // operations of one chain happen in order; 0: none
  std::vector<ThreadBlock*> blocks{};  // whose shared memory it touches; they must not have ended
};

class AsyncQueue {
 public:
  void reset();
  bool empty() const { return pending_.empty(); }
  std::size_t size() const { return pending_.size(); }

  // Registers the operation with its mbarriers.
  void issue(Issue issue, const Origin& origin);

  // Finishes one operation: the oldest, or any that may come next if `random` is given. False if there is none.
  bool finish_one(std::mt19937_64* random);
  // Finishes (or only reads, for the operations that can) those of a queue's groups up to `group`.
  void finish_groups(std::uint64_t queue, std::uint64_t group, bool only_read);
  void finish_chain(std::uint32_t chain);
  void finish_all();
  void finish_of(const ThreadBlock* block);  // what touches its shared memory

 private:
  struct Pending {
    Issue issue;
    Origin origin;
    bool has_read = false;
  };
  void read(Pending& pending);
  void finish(std::size_t at);

  std::deque<Pending> pending_;
};

}  // namespace msa_ops::emulator

#include "async.hpp"

#include <algorithm>
#include <utility>

#include "thread_block.hpp"

namespace msa_ops::emulator {

Place Origin::place() const {
  return program->place_of(pc, block, warp);
}

void AsyncQueue::reset() { pending_.clear(); }

void AsyncQueue::issue(Issue issue, const Origin& origin) {
  for (Signal& signal : issue.signals) ++signal.barrier->in_flight;
  pending_.push_back({std::move(issue), origin});
}

void AsyncQueue::read(Pending& pending) {
  if (pending.has_read) return;
  pending.has_read = true;
  try {
    for (const ThreadBlock* block : pending.issue.blocks) {
      if (block->ended()) {
        throw Violation{FaultKind::kExited, "asynchronous work on the shared memory of a block that has ended"};
      }
    }
    pending.issue.operation->read();
  } catch (const Violation& violation) {
    throw Fault(violation, pending.origin.place());
  }
}

void AsyncQueue::finish(std::size_t at) {
  Pending pending = std::move(pending_[at]);
  pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(at));
  read(pending);
  try {
    pending.issue.operation->write();
    for (const Signal& signal : pending.issue.signals) {
      if (signal.arrives) signal.owner->work_arrives(*signal.barrier, signal.knowledge);
      else signal.owner->work_done(*signal.barrier, signal.bytes);
    }
  } catch (const Violation& violation) {
    throw Fault(violation, pending.origin.place());
  }
}

bool AsyncQueue::finish_one(std::mt19937_64* random) {
  if (pending_.empty()) return false;
  std::size_t at = 0;
  if (random != nullptr) {
    at = static_cast<std::size_t>((*random)() % pending_.size());
    const std::uint32_t chain = pending_[at].issue.chain;
    if (chain != 0) {
      at = 0;
      while (pending_[at].issue.chain != chain) ++at;
    }
  }
  finish(at);
  return true;
}

void AsyncQueue::finish_groups(std::uint64_t queue, std::uint64_t group, bool only_read) {
  for (std::size_t at = 0; at < pending_.size();) {
    Pending& pending = pending_[at];
    if (pending.issue.queue != queue || pending.issue.group > group) {
      ++at;
    } else if (only_read) {
      read(pending);
      ++at;
    } else {
      finish(at);
    }
  }
}

void AsyncQueue::finish_chain(std::uint32_t chain) {
  for (std::size_t at = 0; at < pending_.size();) {
    if (pending_[at].issue.chain == chain) finish(at);
    else ++at;
  }
}

void AsyncQueue::finish_all() {
  while (!pending_.empty()) finish(0);
}

void AsyncQueue::finish_of(const ThreadBlock* block) {
  for (std::size_t at = 0; at < pending_.size();) {
    const auto& blocks = pending_[at].issue.blocks;
    if (std::find(blocks.begin(), blocks.end(), block) != blocks.end()) finish(at);
    else ++at;
  }
}

}  // namespace msa_ops::emulator

#include "progress.hpp"

#include <algorithm>

namespace msa_ops::emulator {
namespace {

std::atomic<bool (*)()> the_check{nullptr};

}  // namespace

void set_host_check(bool (*check)()) { the_check = check; }

bool host_may_store() {
  bool (*const check)() = the_check;
  return check != nullptr && check();
}

Progress::Progress(std::size_t workers, bool host_may_store) : host_may_store_(host_may_store) {
  for (std::size_t i = 0; i < workers; ++i) workers_.push_back(std::make_unique<Worker>(*this));
}

std::uint64_t Progress::total() const {
  std::uint64_t sum = 0;
  for (const auto& worker : workers_) sum += worker->changes_.load(std::memory_order_acquire);
  return sum;
}

void Progress::end(Worker& worker) {
  const std::lock_guard<std::mutex> lock(mutex_);
  worker.has_ended_ = true;
}

bool Progress::all_rest(std::uint64_t Worker::*at, std::uint64_t total) const {
  return std::all_of(workers_.begin(), workers_.end(),
                     [&](const auto& one) { return one->has_ended_ || (*one).*at == total; }) &&
         this->total() == total;
}

void Progress::report() const {
  std::string message = "no warp of the launch can go on";
  Place place;
  for (const auto& one : workers_) {
    if (one->has_ended_) continue;
    message += one->text_;
    if (place.line == 0) place = one->place_;
  }
  throw Fault({FaultKind::kDeadlock, message}, place);
}

}  // namespace msa_ops::emulator

#include "thread_block.hpp"

#include <algorithm>
#include <string>

namespace msa_ops::emulator {
namespace {

constexpr std::uint64_t kTurn = 256;  // instructions before the next warp runs

}  // namespace

ThreadBlock::ThreadBlock(const Program& program, const LaunchShape& shape, const GlobalMemory& global)
    : program_(program),
      shape_(shape),
      global_(global),
      shared_(program.shared_base(), program.static_shared_memory() + shape.dynamic_shared_memory) {
  const unsigned threads = shape.block[0] * shape.block[1] * shape.block[2];
  const unsigned size = program.warp_size();
  for (unsigned first = 0; first < threads; first += size) {
    warps_.push_back(program.make_warp(*this, first / size, std::min(size, threads - first)));
  }
}

void ThreadBlock::run(std::array<unsigned, 3> index, std::uint64_t& budget) {
  index_ = index;
  shared_.forget();
  barriers_.reset(static_cast<unsigned>(warps_.size()));
  for (const auto& warp : warps_) warp->start();
  std::vector<WarpProgram::State> states(warps_.size(), WarpProgram::State::kReady);
  for (std::size_t done = 0; done < warps_.size();) {
    bool progress = false;
    for (unsigned i = 0; i < warps_.size(); ++i) {
      if (states[i] == WarpProgram::State::kDone || barriers_.waiting(i)) continue;
      progress = true;
      std::uint64_t executed = 0;
      states[i] = warps_[i]->run(std::min(kTurn, budget), executed);
      budget -= executed;
      if (states[i] == WarpProgram::State::kDone) {
        ++done;
        barriers_.exit();
      } else if (budget == 0) {
        throw Fault({FaultKind::kLimit, "the launch took more instructions than it may; does this warp spin?"},
                    warps_[i]->place());
      }
    }
    if (!progress) report_deadlock(states);
  }
}

void ThreadBlock::report_deadlock(const std::vector<WarpProgram::State>& states) const {
  std::string message = "no warp of the block can go on";
  Place first;
  for (unsigned i = 0; i < warps_.size(); ++i) {
    if (states[i] == WarpProgram::State::kDone) continue;
    const Place place = warps_[i]->place();
    if (first.line == 0) first = place;
    message += "; warp " + std::to_string(i) + " at line " + std::to_string(place.line) + " waits for " +
               barriers_.describe(i);
  }
  throw Fault({FaultKind::kDeadlock, message}, first);
}

void ThreadBlock::add_to(Counters& counters) const {
  for (const auto& warp : warps_) warp->add_to(counters);
}

}  // namespace msa_ops::emulator

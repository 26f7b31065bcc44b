// A thread block: its memory, its barriers, and its warps taking turns.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "barriers.hpp"
#include "global_memory.hpp"
#include "grid.hpp"
#include "program.hpp"
#include "shared_memory.hpp"

namespace msa_ops::emulator {

class ThreadBlock {
 public:
  ThreadBlock(const Program& program, const LaunchShape& shape, const GlobalMemory& global);

  // Runs the block of this index to its end. `budget` is what the launch may still execute; it is reduced.
  void run(std::array<unsigned, 3> index, std::uint64_t& budget);
  void add_to(Counters& counters) const;

  const LaunchShape& shape() const { return shape_; }
  const std::array<unsigned, 3>& index() const { return index_; }
  const GlobalMemory& global() const { return global_; }
  SharedMemory& shared() { return shared_; }
  Barriers& barriers() { return barriers_; }

 private:
  [[noreturn]] void report_deadlock(const std::vector<WarpProgram::State>& states) const;

  const Program& program_;
  const LaunchShape& shape_;
  const GlobalMemory& global_;
  SharedMemory shared_;
  Barriers barriers_;
  std::array<unsigned, 3> index_{};
  std::vector<std::unique_ptr<WarpProgram>> warps_;
};

}  // namespace msa_ops::emulator

// A Runtime for everything that a thread launches while it is entered: code that a compiler hands over with its text,
// memory that may change from launch to launch.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "emulator_runtime.hpp"

namespace msa_ops {

class SessionRuntime : public EmulatorRuntime {
 public:
  SessionRuntime(const emulator::Chip& chip, const emulator::RunOptions& options);

  // The machine code that launches name, and the PTX that it was made from.
  void add_module(std::string code, std::string ptx);
  void set_memory(const std::vector<emulator::Allocation>& allocations);
  void set_options(const emulator::RunOptions& options);

  // Between these, launches are kept; then they are executed at the same time, each as if on a device of its own.
  void begin_together();
  void run_together();
  // The same in rounds: launches by their numbers, in the order in which they were kept. Those of a round are executed at
  // the same time. Throws std::invalid_argument unless each is in one.
  void run_together(const std::vector<std::vector<std::size_t>>& rounds);
  // Of what is kept, the streams that they were launched on.
  std::vector<std::uint64_t> kept_streams() const;
  void forget_together() { together_.reset(); }

  // After a failure nothing more is launched, as on a device.
  int launch(const LaunchConfig& config, KernelImage& kernel, void** parameters) override;

  // Name and counts of what was executed, in order.
  std::vector<std::pair<std::string, emulator::Counters>> launches;

 protected:
  const std::string& module_with(const KernelImage& kernel) const override;
  void execute(Launch launch) override;

 private:
  struct Module {
    std::string code, ptx;
  };
  std::vector<Module> modules_;
  emulator::GlobalMemory memory_;
  emulator::Chip chip_;
  emulator::RunOptions options_;
  std::optional<std::vector<Launch>> together_;
};

}  // namespace msa_ops

// Several emulated devices that execute one launch each at the same time, since their kernels may wait for each other.
#pragma once

#include <vector>

#include "emulator_runtime.hpp"
#include "ptx/execute.hpp"

namespace msa_ops {

class DevicesTogether {
 public:
  // memories: of each device.
  DevicesTogether(const emulator::Chip& chip, const emulator::RunOptions& options,
                  std::vector<emulator::GlobalMemory> memories);

  // One launch of each device, in their order; their shapes may differ.
  void execute(std::vector<EmulatorRuntime::Launch> launches);

  // Of each device, summed over its launches.
  std::vector<emulator::Counters> counters() const;

 private:
  emulator::Chip chip_;
  emulator::RunOptions options_;
  std::vector<emulator::ptx::DeviceLaunch> devices_;
};

}  // namespace msa_ops

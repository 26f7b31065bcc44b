// One launch of a PTX kernel, from text to counters.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "../device/grid.hpp"
#include "kernel.hpp"

namespace msa_ops::emulator::ptx {

// The kernel's parameters, in order, as the bytes that the kernel declares for them. Throws std::invalid_argument if
// their number or a size differs, for a launch over the limits, and for a kernel that is compiled for another chip;
// Fault for what the kernel does wrong.
void execute(Kernel& kernel, LaunchShape shape, const std::vector<std::string>& parameters,
             const Chip& chip, const GlobalMemory& global, const RunOptions& options, Counters& counters);

// A kernel on each of several devices at once, each with parameters and memory of its own.
struct DeviceLaunch {
  Kernel* kernel;
  LaunchShape shape;
  std::vector<std::string> parameters;
  GlobalMemory global;
  Counters counters{};
};
void execute_on_devices(std::vector<DeviceLaunch>& devices, const Chip& chip, const RunOptions& options);

}  // namespace msa_ops::emulator::ptx

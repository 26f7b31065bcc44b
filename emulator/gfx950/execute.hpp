// One launch of a kernel of a code object.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "../device/grid.hpp"
#include "kernel.hpp"

namespace msa_ops::emulator::gfx950 {

extern const Chip kChip;

// `kernarg` holds the explicit arguments, as the kernel lays them out; hidden ones are filled in behind them. `memory`
// is what the kernel may use besides; `uncached` ranges of it go past the caches, as fine-grained memory does. Throws
// std::invalid_argument for a launch over the limits or too few bytes of arguments, Fault for what the kernel does
// wrong.
void execute(Kernel& kernel, const LaunchShape& shape, std::vector<std::uint8_t> kernarg,
             std::vector<Allocation> memory, const RunOptions& options, Counters& counters,
             std::vector<Coherence::Range> uncached = {});

// The same kernel on each of several devices at the same time; they may wait for each other. Memory of one that others
// may use is in the list of each of them.
struct DeviceLaunch {
  Kernel* kernel;  // one each
  std::vector<std::uint8_t> kernarg;
  std::vector<Allocation> memory;
  Counters counters{};
};
void execute_on_devices(std::vector<DeviceLaunch>& devices, const LaunchShape& shape, const RunOptions& options,
                        std::vector<Coherence::Range> uncached = {});

}  // namespace msa_ops::emulator::gfx950

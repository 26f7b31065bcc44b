#include "execute.hpp"

#include <algorithm>
#include <stdexcept>

namespace msa_ops::emulator::ptx {

namespace {

void prepare(Kernel& kernel, LaunchShape& shape, const std::vector<std::string>& parameters, const Chip& chip) {
  if (!chip.runs(kernel.target())) {
    throw std::invalid_argument("kernel " + kernel.name() + ": compiled for " + kernel.target() + ", which " +
                                chip.name + " does not run");
  }
  const std::vector<Parameter>& declared = kernel.parameters();
  if (declared.size() != parameters.size()) {
    throw std::invalid_argument("kernel " + kernel.name() + " takes " + std::to_string(declared.size()) +
                                " parameters; " + std::to_string(parameters.size()) + " given");
  }
  std::vector<unsigned char> bytes(declared.empty() ? 0 : declared.back().offset + declared.back().bytes);
  for (std::size_t i = 0; i < declared.size(); ++i) {
    if (parameters[i].size() != declared[i].bytes) {
      throw std::invalid_argument("parameter " + std::to_string(i) + " of kernel " + kernel.name() + " has " +
                                  std::to_string(declared[i].bytes) + " bytes; " +
                                  std::to_string(parameters[i].size()) + " given");
    }
    std::copy(parameters[i].begin(), parameters[i].end(), bytes.data() + declared[i].offset);
  }
  kernel.set_parameters(bytes);
  kernel.check_block(shape.block);
  kernel.check_cluster(shape);
}

}  // namespace

void execute(Kernel& kernel, LaunchShape shape, const std::vector<std::string>& parameters, const Chip& chip,
             const GlobalMemory& global, const RunOptions& options, Counters& counters) {
  prepare(kernel, shape, parameters, chip);
  run_grid(kernel, shape, chip, global.with(kernel.variables()), options, counters);
}

void execute_on_devices(std::vector<DeviceLaunch>& devices, const Chip& chip, const RunOptions& options) {
  std::vector<GridLaunch> launches;
  for (DeviceLaunch& device : devices) {
    prepare(*device.kernel, device.shape, device.parameters, chip);
    device.global = device.global.with(device.kernel->variables());
    launches.push_back({device.kernel, &device.shape, &chip, &device.global, &device.counters});
  }
  run_grids(launches, options);
}

}  // namespace msa_ops::emulator::ptx

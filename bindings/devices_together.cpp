#include "devices_together.hpp"

#include <stdexcept>
#include <string>
#include <utility>

namespace msa_ops {

DevicesTogether::DevicesTogether(const emulator::Chip& chip, const emulator::RunOptions& options,
                                 std::vector<emulator::GlobalMemory> memories)
    : chip_(chip), options_(options) {
  for (auto& memory : memories) devices_.push_back({nullptr, {}, std::move(memory), {}});
}

void DevicesTogether::execute(std::vector<EmulatorRuntime::Launch> launches) {
  const emulator::LaunchShape& shape = launches.front().shape;
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    auto& own = launches.at(i);
    if (own.shape.grid != shape.grid || own.shape.block != shape.block || own.shape.cluster != shape.cluster ||
        own.shape.dynamic_shared_memory != shape.dynamic_shared_memory) {
      throw std::invalid_argument("device " + std::to_string(i) + " launches another shape than device 0");
    }
    devices_[i].kernel = own.kernel.get();
    devices_[i].parameters = std::move(own.parameters);
  }
  emulator::ptx::execute_on_devices(devices_, shape, chip_, options_);
}

std::vector<emulator::Counters> DevicesTogether::counters() const {
  std::vector<emulator::Counters> found;
  for (const auto& device : devices_) found.push_back(device.counters);
  return found;
}

}  // namespace msa_ops

#include "devices_together.hpp"

#include <utility>

namespace msa_ops {

DevicesTogether::DevicesTogether(const emulator::Chip& chip, const emulator::RunOptions& options,
                                 std::vector<emulator::GlobalMemory> memories)
    : chip_(chip), options_(options) {
  for (auto& memory : memories) devices_.push_back({nullptr, {}, {}, std::move(memory), {}});
}

void DevicesTogether::execute(std::vector<EmulatorRuntime::Launch> launches) {
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    auto& own = launches.at(i);
    devices_[i].kernel = own.kernel.get();
    devices_[i].shape = own.shape;
    devices_[i].parameters = std::move(own.parameters);
  }
  emulator::ptx::execute_on_devices(devices_, chip_, options_);
}

std::vector<emulator::Counters> DevicesTogether::counters() const {
  std::vector<emulator::Counters> found;
  for (const auto& device : devices_) found.push_back(device.counters);
  return found;
}

}  // namespace msa_ops

#include "execute.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <stdexcept>

namespace msa_ops::emulator::gfx950 {

// MI355X: 256 compute units of 160 KB of LDS and 32 waves.
const Chip kChip{"gfx950", 9, 5, 256, 163'840, 163'840, 163'840, 0, 1, 2048, 32, 1024,
                 {2'147'483'647, 65'535, 65'535}, {1024, 1024, 1024}};

namespace {

// Values that compilers ask for behind the explicit arguments.
bool hidden_value(const std::string& kind, const LaunchShape& shape, std::uint64_t& value) {
  static const char* const kAxes[] = {"_x", "_y", "_z"};
  for (unsigned axis = 0; axis < 3; ++axis) {
    if (kind == std::string("hidden_block_count") + kAxes[axis]) value = shape.grid[axis];
    else if (kind == std::string("hidden_group_size") + kAxes[axis]) value = shape.block[axis];
    else if (kind == std::string("hidden_remainder") + kAxes[axis] ||
             kind == std::string("hidden_global_offset") + kAxes[axis])
      value = 0;
    else continue;
    return true;
  }
  if (kind == "hidden_grid_dims") {
    value = shape.grid[2] * shape.block[2] > 1 ? 3 : shape.grid[1] * shape.block[1] > 1 ? 2 : 1;
    return true;
  }
  if (kind == "hidden_dynamic_lds_size") {
    value = shape.dynamic_shared_memory;
    return true;
  }
  if (kind == "hidden_none") {
    value = 0;
    return true;
  }
  return false;
}

// The packet by which a launch is put into a queue, as the HSA standard lays it out (version 1.2, section 2.9.6).
struct DispatchPacket {
  std::uint16_t header = 2;  // a dispatch of a kernel
  std::uint16_t dimensions = 3;
  std::array<std::uint16_t, 3> workgroup{};
  std::uint16_t reserved = 0;
  std::array<std::uint32_t, 3> grid{};  // work-items
  std::uint32_t private_segment_bytes = 0;
  std::uint32_t group_segment_bytes = 0;
  std::uint64_t kernel_object = 0;
  std::uint64_t kernarg_address = 0;
  std::uint64_t reserved_too = 0;
  std::uint64_t completion_signal = 0;
};
static_assert(sizeof(DispatchPacket) == 64);

std::uint64_t workgroups(const LaunchShape& shape) {
  return std::uint64_t{shape.grid[0]} * shape.grid[1] * shape.grid[2];
}

// Completes the arguments and gives them to the kernel; they are memory that it may read.
void prepare(Kernel& kernel, const LaunchShape& shape, std::vector<std::uint8_t>& kernarg,
             std::vector<Allocation>& memory) {
  const KernelImage& image = kernel.image();
  if (image.most_threads != 0 && shape.threads() > image.most_threads) {
    throw std::invalid_argument("block: " + std::to_string(shape.threads()) + " work-items; kernel " + kernel.name() +
                                " was compiled for " + std::to_string(image.most_threads) + " at most");
  }
  std::size_t explicit_bytes = 0;
  for (const KernelArgument& argument : image.arguments) {
    if (argument.kind.rfind("hidden_", 0) != 0)
      explicit_bytes = std::max(explicit_bytes, std::size_t{argument.offset} + argument.bytes);
  }
  if (kernarg.size() < explicit_bytes) {
    throw std::invalid_argument("kernarg: " + std::to_string(kernarg.size()) + " bytes; kernel " + kernel.name() +
                                " takes " + std::to_string(explicit_bytes));
  }
  constexpr std::size_t kAlignment = 16;  // of the segment, so that a structure may be filled up to it
  const std::size_t most = (std::max<std::size_t>(explicit_bytes, image.descriptor.kernarg_bytes) + kAlignment - 1) /
                           kAlignment * kAlignment;
  if (kernarg.size() > most) {
    throw std::invalid_argument("kernarg: " + std::to_string(kernarg.size()) + " bytes; kernel " + kernel.name() + " takes " +
                                std::to_string(explicit_bytes) + ", with hidden ones " +
                                std::to_string(image.descriptor.kernarg_bytes));
  }
  kernarg.resize(std::max<std::size_t>(kernarg.size(), image.descriptor.kernarg_bytes));
  for (const KernelArgument& argument : image.arguments) {
    std::uint64_t value = 0;
    if (argument.kind.rfind("hidden_", 0) != 0 || !hidden_value(argument.kind, shape, value)) continue;
    if (std::size_t{argument.offset} + argument.bytes <= kernarg.size()) {
      std::memcpy(&kernarg[argument.offset], &value, std::min<std::size_t>(argument.bytes, sizeof(value)));
    }
  }
  kernarg.resize((kernarg.size() + 255) & ~std::size_t{63});  // loads of several dwords may go on behind the last one
  const std::size_t packet_at = kernarg.size();
  kernarg.resize(packet_at + sizeof(DispatchPacket));
  const auto address = reinterpret_cast<std::uint64_t>(kernarg.data());
  DispatchPacket packet;
  for (unsigned axis = 0; axis < 3; ++axis) {
    packet.workgroup[axis] = static_cast<std::uint16_t>(shape.block[axis]);
    packet.grid[axis] = shape.grid[axis] * shape.block[axis];
  }
  packet.private_segment_bytes = image.descriptor.private_segment_bytes;
  packet.group_segment_bytes =
      static_cast<std::uint32_t>(image.descriptor.group_segment_bytes + shape.dynamic_shared_memory);
  packet.kernarg_address = address;
  std::memcpy(&kernarg[packet_at], &packet, sizeof(packet));
  kernel.set_dispatch_packet(address + packet_at);
  kernel.set_kernarg(address, kernarg.size());
  memory.push_back({address, kernarg.size(), false, "kernel arguments"});
}

}  // namespace

void execute(Kernel& kernel, const LaunchShape& shape, std::vector<std::uint8_t> kernarg,
             std::vector<Allocation> memory, const RunOptions& options, Counters& counters,
             std::vector<Coherence::Range> uncached) {
  prepare(kernel, shape, kernarg, memory);
  const GlobalMemory global(std::move(memory));
  Coherence coherence({workgroups(shape)}, std::move(uncached), options.seed);
  kernel.set_coherence(&coherence, 0);
  run_grid(kernel, shape, kChip, global, options, counters);
}

void execute_on_devices(std::vector<DeviceLaunch>& devices, const LaunchShape& shape, const RunOptions& options,
                        std::vector<Coherence::Range> uncached) {
  std::vector<GlobalMemory> memories;
  std::vector<GridLaunch> launches;
  Coherence coherence(std::vector<std::uint64_t>(devices.size(), workgroups(shape)), std::move(uncached), options.seed);
  memories.reserve(devices.size());
  for (DeviceLaunch& device : devices) {
    prepare(*device.kernel, shape, device.kernarg, device.memory);
    device.kernel->set_coherence(&coherence, static_cast<unsigned>(launches.size()));
    memories.emplace_back(device.memory);
    launches.push_back({device.kernel, &shape, &kChip, &memories.back(), &device.counters});
  }
  run_grids(launches, options);
}

}  // namespace msa_ops::emulator::gfx950

#include "emulator_runtime.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <stdexcept>
#include <utility>

#include "ptx/execute.hpp"
#include "ptx/tensor_map.hpp"

namespace msa_ops {
namespace {

constexpr int kInvalidValue = 1;    // CUDA_ERROR_INVALID_VALUE
constexpr int kLaunchFailed = 719;  // CUDA_ERROR_LAUNCH_FAILED

// CUdevice_attribute and CUfunction_attribute
constexpr int kMultiprocessors = 16;
constexpr int kComputeCapabilityMajor = 75;
constexpr int kComputeCapabilityMinor = 76;
constexpr int kMaxSharedMemoryPerBlockOptin = 97;
constexpr int kMaxDynamicSharedMemory = 8;
constexpr int kNonPortableClusterSizeAllowed = 14;

constexpr std::size_t kSharedMemoryWithoutOptIn = 48 * 1024;

}  // namespace

EmulatorRuntime::EmulatorRuntime(std::vector<std::string> modules, std::vector<emulator::Allocation> allocations,
                                 emulator::Chip chip, const emulator::RunOptions& options)
    : modules_(std::move(modules)), memory_(std::move(allocations)), chip_(std::move(chip)), options_(options) {}

int EmulatorRuntime::get_device(int* device) {
  *device = 0;
  return 0;
}

int EmulatorRuntime::device_get_attribute(int* value, int attribute, int) {
  switch (attribute) {
    case kMultiprocessors: *value = static_cast<int>(chip_.multiprocessors); return 0;
    case kComputeCapabilityMajor: *value = static_cast<int>(chip_.major); return 0;
    case kComputeCapabilityMinor: *value = static_cast<int>(chip_.minor); return 0;
    case kMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(chip_.shared_memory_a_block);
      return 0;
    default: return kInvalidValue;
  }
}

int EmulatorRuntime::kernel_get_attribute(int* value, int attribute, KernelImage& kernel, int) {
  if (attribute != kMaxDynamicSharedMemory) {
    *value = 0;
    return 0;
  }
  const auto found = dynamic_shared_memory_.find(&kernel);
  *value = found != dynamic_shared_memory_.end() ? found->second : static_cast<int>(kSharedMemoryWithoutOptIn);
  return 0;
}

int EmulatorRuntime::kernel_set_attribute(KernelImage& kernel, int attribute, int value, int) {
  if (attribute == kNonPortableClusterSizeAllowed) not_portable_[&kernel] = value != 0;
  if (attribute != kMaxDynamicSharedMemory) return 0;
  if (value < 0 || static_cast<std::size_t>(value) > chip_.shared_memory_a_block) return kInvalidValue;
  dynamic_shared_memory_[&kernel] = value;
  return 0;
}

int EmulatorRuntime::launch(const LaunchConfig& config, KernelImage& kernel, void** parameters) {
  try {
    execute(launch_of(config, kernel, parameters));
    return 0;
  } catch (...) {
    failure_ = std::current_exception();
    return kLaunchFailed;
  }
}

int EmulatorRuntime::tensor_map_encode_tiled(void* map, int type, std::uint32_t rank, void* address, const std::uint64_t* sizes,
                                             const std::uint64_t* strides, const std::uint32_t* box, const std::uint32_t* steps,
                                             int interleave, int swizzle, int l2_promotion, int fill) {
  using emulator::ptx::TensorMap;
  using Type = TensorMap::Type;
  // In the driver's order.
  constexpr Type kTypes[] = {Type::kU8,   Type::kU16,      Type::kU32,  Type::kS32,       Type::kU64,   Type::kS64,
                             Type::kF16,  Type::kF32,      Type::kF64,  Type::kBf16,      Type::kF32Flush,
                             Type::kTf32, Type::kTf32Flush, Type::kB4x16, Type::kB4x16P64, Type::kB6x16P32};
  constexpr std::pair<unsigned, TensorMap::Atomicity> kSwizzles[] = {
      {0, TensorMap::Atomicity::k16}, {1, TensorMap::Atomicity::k16}, {2, TensorMap::Atomicity::k16},
      {3, TensorMap::Atomicity::k16}, {3, TensorMap::Atomicity::k32}, {3, TensorMap::Atomicity::k32Flip8},
      {3, TensorMap::Atomicity::k64}};
  if (type < 0 || type >= static_cast<int>(std::size(kTypes)) || swizzle < 0 ||
      swizzle >= static_cast<int>(std::size(kSwizzles)) || rank < 1 || rank > TensorMap::kMostDimensions) {
    return kInvalidValue;
  }
  TensorMap made;
  made.address = reinterpret_cast<std::uint64_t>(address);
  made.rank = rank;
  made.type = kTypes[type];
  std::copy_n(sizes, rank, made.sizes.begin());
  std::copy_n(strides, rank - 1, made.strides.begin() + 1);
  std::copy_n(box, rank, made.box.begin());
  std::copy_n(steps, rank, made.steps.begin());
  made.interleave = static_cast<unsigned>(interleave);
  made.swizzle = kSwizzles[swizzle].first;
  made.atomicity = kSwizzles[swizzle].second;
  made.nan_outside = fill != 0;
  try {
    made.encode(static_cast<std::byte*>(map), static_cast<unsigned>(l2_promotion));
    return 0;
  } catch (const std::invalid_argument&) {
    failure_ = std::current_exception();
    return kInvalidValue;
  }
}

const std::string& EmulatorRuntime::module_with(const KernelImage& image) const {
  const std::string& kernel = image.name;
  for (const std::string& text : modules_) {
    for (std::size_t at = text.find(kernel); at != std::string::npos; at = text.find(kernel, at + 1)) {
      constexpr const char* kEntry = ".entry ";
      const std::size_t end = at + kernel.size();
      const bool whole = end == text.size() || std::string(" (\t\n\r").find(text[end]) != std::string::npos;
      if (whole && at >= 7 && text.compare(at - 7, 7, kEntry) == 0) return text;
    }
  }
  throw std::invalid_argument("ptx: the launcher launches " + kernel + ", which none of the " +
                              std::to_string(modules_.size()) + " texts holds");
}

EmulatorRuntime::Launch EmulatorRuntime::launch_of(const LaunchConfig& config, KernelImage& image,
                                                   void** parameters) const {
  Launch launch;
  for (unsigned i = 0; i < config.num_attributes; ++i) {
    const LaunchAttribute& attribute = config.attributes[i];
    if (attribute.id == kClusterDimension) {
      std::copy_n(attribute.value, sizeof(launch.shape.cluster),
                  reinterpret_cast<unsigned char*>(launch.shape.cluster.data()));
      launch.shape.asks_for_cluster = true;
    } else if (attribute.id == kProgrammaticSerialization) {
      int allowed = 0;
      std::memcpy(&allowed, attribute.value, sizeof(allowed));
      launch.begins_early = allowed != 0;
    }
  }
  const auto allowed = dynamic_shared_memory_.find(&image);
  const std::size_t most = allowed == dynamic_shared_memory_.end()
                               ? kSharedMemoryWithoutOptIn
                               : std::max(kSharedMemoryWithoutOptIn, static_cast<std::size_t>(allowed->second));
  if (config.dynamic_shared_memory > most) {
    throw std::invalid_argument("kernel " + image.name + ": " + std::to_string(config.dynamic_shared_memory) +
                                " bytes of dynamic shared memory; it was allowed " + std::to_string(most));
  }
  launch.kernel = std::make_unique<emulator::ptx::Kernel>(module_with(image), image.name);
  for (const auto& parameter : launch.kernel->parameters()) {
    launch.parameters.emplace_back(static_cast<const char*>(*parameters++), parameter.bytes);
  }
  launch.stream = reinterpret_cast<std::uint64_t>(config.stream);
  std::copy_n(config.grid, 3, launch.shape.grid.begin());
  std::copy_n(config.block, 3, launch.shape.block.begin());
  launch.shape.dynamic_shared_memory = config.dynamic_shared_memory;
  const auto not_portable = not_portable_.find(&image);
  launch.shape.may_be_not_portable = not_portable != not_portable_.end() && not_portable->second;
  return launch;
}

void EmulatorRuntime::execute(Launch launch) {
  memory_.set_pending(launch.begins_early ? pending_ : std::vector<emulator::GlobalMemory::Pending>{});
  emulator::ptx::execute(*launch.kernel, launch.shape, launch.parameters, chip_, memory_, options_, counters);
  pending_.clear();
  for (const auto& [first, end] : memory_.last_writes()) pending_.push_back({first, end});
}

void EmulatorRuntime::rethrow() const {
  if (failure_) std::rethrow_exception(failure_);
}

std::string EmulatorRuntime::describe(int status) { return "CUresult " + std::to_string(status); }

}  // namespace msa_ops

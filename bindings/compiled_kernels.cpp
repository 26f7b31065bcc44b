#include "compiled_kernels.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <unordered_map>

namespace msa_ops {

// Generated from the objects that the build was given; may be empty.
extern const std::vector<CompiledKernel> kCompiledKernels;

namespace {

constexpr int kMaxDevices = 64;

struct LoadState {
  std::mutex mutex;
  std::array<std::atomic<bool>, kMaxDevices> on_device{};
};

LoadState& load_state(int position) {
  static auto* states = [] {
    auto* made = new std::vector<std::unique_ptr<LoadState>>();
    for (std::size_t i = 0; i < kCompiledKernels.size(); ++i) made->push_back(std::make_unique<LoadState>());
    return made;
  }();
  return *states->at(position);
}

[[noreturn]] void fail(const CompiledKernel& kernel, const char* step, int status, Runtime& runtime) {
  throw std::runtime_error("kernel " + std::string(kernel.name) + ": " + step + " failed: " + runtime.describe(status));
}

void initialize(const CompiledKernel& kernel, Runtime& runtime) {
  // The generated code takes addresses of its arguments: a pointer to the library handle, and the return code.
  void* library = nullptr;
  void** library_pointer = &library;
  int status = 0;
  void* arguments[] = {&library_pointer, &status};
  kernel.init(arguments);
  if (status != 0) fail(kernel, "loading its code", status, runtime);
  int device = 0;
  status = runtime.get_device(&device);
  if (status != 0) fail(kernel, "asking for the device", status, runtime);
  void* load_arguments[] = {&library_pointer, &device, &status};
  kernel.load_to_device(load_arguments);
  if (status != 0) fail(kernel, "loading onto the device", status, runtime);
}

void run(const CompiledKernel& kernel, Runtime& runtime, std::uintptr_t stream, LaunchValues& values) {
  if (static_cast<int>(values.size()) != kernel.num_arguments) {
    throw std::invalid_argument("kernel " + std::string(kernel.name) + " takes " +
                                std::to_string(kernel.num_arguments) + " arguments; " +
                                std::to_string(values.size()) + " given");
  }
  std::array<void*, LaunchValues::kMost + 2> arguments;
  for (std::size_t i = 0; i < values.size(); ++i) arguments[i] = &values[i];
  std::int32_t status = 0;
  arguments[values.size()] = &stream;
  arguments[values.size() + 1] = &status;
  kernel.launch(arguments.data(), kernel.num_arguments + 2);
  if (status != 0) fail(kernel, "its launch", status, runtime);
}

// Of objects that are not in the table; the driver is not concerned.
std::mutex& foreign_mutex() {
  static auto* mutex = new std::mutex();
  return *mutex;
}

const CompiledKernel& at(int position) {
  if (position < 0 || position >= static_cast<int>(kCompiledKernels.size())) {
    throw std::out_of_range("no compiled kernel at position " + std::to_string(position));
  }
  return kCompiledKernels[position];
}

}  // namespace

const std::vector<CompiledKernel>& compiled_kernels() { return kCompiledKernels; }

int find_kernel(const std::string& name) {
  static const auto* positions = [] {
    auto* made = new std::unordered_map<std::string, int>();
    for (std::size_t i = 0; i < kCompiledKernels.size(); ++i) (*made)[kCompiledKernels[i].name] = static_cast<int>(i);
    return made;
  }();
  const auto place = positions->find(name);
  if (place == positions->end()) throw std::out_of_range("this build holds no kernel " + name);
  return place->second;
}

LaunchValues::LaunchValues(const std::vector<std::int64_t>& values) : size_(values.size()) {
  if (size_ > kMost) throw std::invalid_argument("no kernel takes " + std::to_string(size_) + " arguments");
  std::copy(values.begin(), values.end(), values_.begin());
}

KernelLauncher::KernelLauncher(int device, std::uintptr_t stream, StreamRuntime* through)
    : device_(device),
      stream_(stream),
      driver_(DriverRuntime::instance()),
      runtime_(through != nullptr ? *through : driver_),
      device_scope_(driver_, device),
      runtime_scope_(runtime_) {}

void KernelLauncher::launch(int position, LaunchValues& values) const {
  if (position == kClear) return clear(values);
  const CompiledKernel& kernel = at(position);
  LoadState& state = load_state(position);
  auto& loaded = state.on_device[device_];
  if (!loaded.load(std::memory_order_acquire)) {
    const std::lock_guard<std::mutex> lock(state.mutex);
    if (!loaded.load(std::memory_order_acquire)) {
      initialize(kernel, driver_);
      loaded.store(true, std::memory_order_release);
    }
  }
  run(kernel, runtime_, stream_, values);
}

void KernelLauncher::clear(const LaunchValues& values) const {
  if (values.size() != 2) throw std::invalid_argument("memory is cleared by an address and a number of bytes");
  const auto num_bytes = static_cast<std::size_t>(values[1]);
  const int status =
      runtime_.clear(static_cast<std::uint64_t>(values[0]), num_bytes, reinterpret_cast<void*>(stream_));
  if (status != 0) {
    throw std::runtime_error("clearing " + std::to_string(num_bytes) + " bytes of a workspace failed: " +
                             runtime_.describe(status));
  }
}

void launch_on(int position, Runtime& runtime, const std::vector<std::int64_t>& arguments) {
  const CompiledKernel& kernel = at(position);
  const RuntimeScope scope(runtime);
  {
    const std::lock_guard<std::mutex> lock(load_state(position).mutex);
    initialize(kernel, runtime);
  }
  LaunchValues values(arguments);
  run(kernel, runtime, 0, values);
}

void launch_on(const CompiledKernel& kernel, Runtime& runtime, std::vector<void*> arguments) {
  const RuntimeScope scope(runtime);
  {
    const std::lock_guard<std::mutex> lock(foreign_mutex());
    initialize(kernel, runtime);
  }
  std::int64_t status = 0;
  const auto count = static_cast<std::int32_t>(arguments.size() + 1);
  arguments.push_back(&status);
  kernel.launch(arguments.data(), count);
  if (status != 0) fail(kernel, "its launch", status, runtime);
}

std::vector<RecordedLaunch> record_launch(int position, const std::vector<std::int64_t>& arguments) {
  RecordingRuntime recorder;
  launch_on(position, recorder, arguments);
  return recorder.launches;
}

}  // namespace msa_ops

// The kernels that were linked into this module: a table, lazy loading, and launching by position.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "driver_runtime.hpp"
#include "recording_runtime.hpp"

namespace msa_ops {

// Entry points of one exported object, as CuTe-DSL generates them.
struct CompiledKernel {
  const char* name;  // unique: op, configuration and arch
  const char* arch;
  int num_arguments;  // without stream and return code
  void (*init)(void** arguments);
  void (*load_to_device)(void** arguments);
  void (*launch)(void** arguments, std::int32_t count);
};

const std::vector<CompiledKernel>& compiled_kernels();

// Position of a kernel in the table; throws std::out_of_range with the known names of the arch.
int find_kernel(const std::string& name);

// The arguments of a launch, addresses or integers in eight bytes each. Throws std::invalid_argument if there are more
// than any kernel takes.
class LaunchValues {
 public:
  static constexpr std::size_t kMost = 48;
  explicit LaunchValues(const std::vector<std::int64_t>& values);
  std::int64_t& operator[](std::size_t place) { return values_[place]; }
  const std::int64_t& operator[](std::size_t place) const { return values_[place]; }
  std::size_t size() const { return size_; }
  bool operator==(const LaunchValues& other) const {
    return std::equal(values_.begin(), values_.begin() + size_, other.values_.begin(), other.values_.begin() + other.size_);
  }

 private:
  std::array<std::int64_t, kMost> values_;
  std::size_t size_;
};

// In place of a kernel's position: memory that is zeroed. Its arguments are an address and a number of bytes.
constexpr int kClear = -1;

// Launches kernels of the table on a stream of a CUDA device, which is current in this thread meanwhile.
class KernelLauncher {
 public:
  // Throws std::runtime_error if there is no driver or device. through: takes the launches in place of the driver.
  KernelLauncher(int device, std::uintptr_t stream, StreamRuntime* through = nullptr);
  // Runs the kernel's host launcher, and loads the kernel at its first launch on the device. Throws std::runtime_error
  // naming kernel and cause. The generated code reads the values where they are. position: of a kernel, or kClear.
  void launch(int position, LaunchValues& values) const;

 private:
  void clear(const LaunchValues& values) const;

  int device_;
  std::uintptr_t stream_;
  DriverRuntime& driver_;
  StreamRuntime& runtime_;
  DriverRuntime::DeviceScope device_scope_;
  RuntimeScope runtime_scope_;
};

// Runs the host launcher of an object that need not be in the table on a runtime that is not the driver. Each argument
// is the address of a value, as the launcher takes it, the streams (null) among them.
void launch_on(const CompiledKernel& kernel, Runtime& runtime, std::vector<void*> arguments);

// The same for one of the table, whose arguments are addresses and integers in eight bytes.
void launch_on(int position, Runtime& runtime, const std::vector<std::int64_t>& arguments);

// Runs the host launcher with nothing behind it and returns what it would have launched.
std::vector<RecordedLaunch> record_launch(int position, const std::vector<std::int64_t>& arguments);

}  // namespace msa_ops

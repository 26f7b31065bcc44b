// The kernels that were linked into this module: a table, lazy loading, and launching by position.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

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

// Runs the kernel's host launcher on a CUDA device. Each argument is an address or an integer in eight bytes.
// Throws std::runtime_error naming kernel and cause.
void launch_kernel(int position, int device, std::uintptr_t stream, const std::vector<std::int64_t>& arguments);

// Runs the host launcher of an object that need not be in the table on a runtime that is not the driver. Each argument
// is the address of a value, as the launcher takes it; the stream is 0.
void launch_on(const CompiledKernel& kernel, Runtime& runtime, std::vector<void*> arguments);

// The same for one of the table, whose arguments are addresses and integers in eight bytes.
void launch_on(int position, Runtime& runtime, const std::vector<std::int64_t>& arguments);

// Runs the host launcher with nothing behind it and returns what it would have launched.
std::vector<RecordedLaunch> record_launch(int position, const std::vector<std::int64_t>& arguments);

}  // namespace msa_ops

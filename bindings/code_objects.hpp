// The AMD code objects that were put into this module as data: a table, and launching by position.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "amd_runtime.hpp"

namespace msa_ops {

struct KernelParameter {
  unsigned offset;  // in the kernel argument segment
  unsigned size;    // bytes
};

struct CodeObject {
  const char* name;  // unique: op, configuration and arch
  const char* arch;
  const char* kernel;
  const unsigned char* code;
  std::size_t code_bytes;
  unsigned threads;
  std::vector<KernelParameter> parameters;
};

const std::vector<CodeObject>& code_objects();

// Position of a code object in the table; throws std::out_of_range.
int find_code_object(const std::string& name);

// Values as the kernel argument segment has them, eight bytes each cut to the parameter's size.
// Throws std::invalid_argument for a value that does not fit.
std::vector<std::uint8_t> kernel_arguments(const CodeObject& object, const std::vector<std::int64_t>& values);

// Launches on a HIP device. Throws std::runtime_error naming kernel and cause, std::invalid_argument.
void launch_code_object(int position, int device, std::uintptr_t stream, unsigned num_workgroups,
                        const std::vector<std::int64_t>& values);

// What such a launch would be, for any AmdRuntime.
AmdLaunch prepare_code_object(int position, unsigned num_workgroups, const std::vector<std::int64_t>& values);

}  // namespace msa_ops

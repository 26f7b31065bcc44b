// The seam between AMD code objects and whatever executes them: the HIP runtime, or something that stands in for it.
//
// A code object holds no host launcher: a launch is the object's bytes, a kernel's name, a grid and the bytes of the
// kernel argument segment.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace msa_ops {

struct AmdLaunch {
  const unsigned char* code;  // a linked ELF file; the same address means the same bytes for the life of the process
  std::size_t code_bytes;
  const char* kernel;               // symbol, without .kd
  std::array<unsigned, 3> grid;     // workgroups
  std::array<unsigned, 3> block;    // work-items
  unsigned dynamic_lds;             // bytes beyond what the code object declares
  std::vector<std::uint8_t> kernarg;  // explicit arguments
  int device;
  void* stream;
};

class AmdRuntime {
 public:
  virtual ~AmdRuntime() = default;
  // Throws std::runtime_error saying what failed.
  virtual void launch(const AmdLaunch& launch) = 0;
};

}  // namespace msa_ops

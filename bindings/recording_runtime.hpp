// A Runtime without a device: host launchers run as they would, and what they launch is written down.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "runtime.hpp"

namespace msa_ops {

struct RecordedLaunch {
  std::string kernel;  // mangled name
  std::array<unsigned, 3> grid;
  std::array<unsigned, 3> block;
  std::array<unsigned, 3> cluster;
  std::size_t dynamic_shared_memory;  // bytes
};

class RecordingRuntime : public Runtime {
 public:
  int get_device(int* device) override;
  int device_get_attribute(int* value, int attribute, int device) override;
  int kernel_get_attribute(int* value, int attribute, KernelImage& kernel, int device) override;
  int kernel_set_attribute(KernelImage& kernel, int attribute, int value, int device) override;
  int launch(const LaunchConfig& config, KernelImage& kernel, void** parameters) override;
  int tensor_map_encode_tiled(void* map, int type, std::uint32_t rank, void* address, const std::uint64_t* sizes,
                              const std::uint64_t* strides, const std::uint32_t* box, const std::uint32_t* steps,
                              int interleave, int swizzle, int l2_promotion, int fill) override;
  std::string describe(int status) override;

  std::vector<RecordedLaunch> launches;
};

}  // namespace msa_ops

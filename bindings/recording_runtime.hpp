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
  std::string describe(int status) override;

  std::vector<RecordedLaunch> launches;
};

}  // namespace msa_ops

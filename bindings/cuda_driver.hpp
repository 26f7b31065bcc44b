// What the CUDA driver says of the machine, asked without creating a context.
#pragma once

#include <string>
#include <vector>

namespace msa_ops {

struct CudaDevice {
  int ordinal;
  std::string name;
  int major;
  int minor;
  int multiprocessors;
  int shared_memory_per_block_optin;  // bytes
};

struct CudaDriver {
  int version = 0;  // 13000 for CUDA 13.0; 0 when there is no driver
  std::string error;  // why `devices` is empty, if it is
  std::vector<CudaDevice> devices;
};

CudaDriver query_cuda_driver();

}  // namespace msa_ops

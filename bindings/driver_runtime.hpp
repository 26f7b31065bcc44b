// Kernels on a real GPU: the Runtime over the CUDA driver API, opened when it is first used.
#pragma once

#include <memory>
#include <string>

#include "runtime.hpp"
#include "shared_library.hpp"

namespace msa_ops {

class DriverRuntime : public Runtime {
 public:
  // The process's one; throws std::runtime_error if there is no usable driver.
  static DriverRuntime& instance();

  int get_device(int* device) override;
  int device_get_attribute(int* value, int attribute, int device) override;
  int kernel_get_attribute(int* value, int attribute, KernelImage& kernel, int device) override;
  int kernel_set_attribute(KernelImage& kernel, int attribute, int value, int device) override;
  int launch(const LaunchConfig& config, KernelImage& kernel, void** parameters) override;
  int tensor_map_encode_tiled(void* map, int type, std::uint32_t rank, void* address, const std::uint64_t* sizes,
                              const std::uint64_t* strides, const std::uint32_t* box, const std::uint32_t* steps,
                              int interleave, int swizzle, int l2_promotion, int fill) override;
  std::string describe(int status) override;

  // Zeros device memory in the order of a stream.
  int clear(std::uint64_t address, std::size_t num_bytes, void* stream);

  // Makes the primary context of a device (the one that torch uses) current for the length of a block.
  class DeviceScope {
   public:
    DeviceScope(DriverRuntime& driver, int device);
    ~DeviceScope();
    DeviceScope(const DeviceScope&) = delete;
    DeviceScope& operator=(const DeviceScope&) = delete;

   private:
    DriverRuntime& driver_;
    bool pushed_ = false;
  };

 private:
  DriverRuntime();
  // The driver's handle, loading the code at the first call.
  int resolve(KernelImage& kernel, void** handle);

  struct Functions;
  std::unique_ptr<Functions> f_;
};

}  // namespace msa_ops

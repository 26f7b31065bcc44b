// Kernels on a real GPU: the Runtime over the CUDA driver API, opened when it is first used.
#pragma once

#include <memory>
#include <string>

#include "runtime.hpp"
#include "shared_library.hpp"

namespace msa_ops {

// A Runtime that zeros memory too, in the order of launches.
class StreamRuntime : public Runtime {
 public:
  virtual int clear(std::uint64_t address, std::size_t num_bytes, void* stream) = 0;
};

class DriverRuntime : public StreamRuntime {
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

  int clear(std::uint64_t address, std::size_t num_bytes, void* stream) override;

  // Whether what is launched in a stream is executed, and not captured.
  bool is_plain(void* stream);

  // Graphs, as the driver's functions of these names; all return a CUresult.
  int begin_capture(void** stream);  // a new stream
  int last_captured(void* stream, void** node);
  int end_capture(void* stream, void** graph);  // the stream is destroyed
  int instantiate(void* graph, void** executable);
  int set_kernel_node(void* executable, void* node, const LaunchConfig& config, KernelImage& kernel, void** parameters);
  int set_clear_node(void* executable, void* node, std::uint64_t address, std::size_t num_bytes);
  int launch_graph(void* executable, void* stream);
  void destroy_executable(void* executable);
  void destroy_graph(void* graph);

  // While one exists, this thread may do what another thread's capture of a stream does not allow by default.
  class RelaxedCapture {
   public:
    explicit RelaxedCapture(DriverRuntime& driver);
    ~RelaxedCapture();
    RelaxedCapture(const RelaxedCapture&) = delete;
    RelaxedCapture& operator=(const RelaxedCapture&) = delete;

   private:
    DriverRuntime& driver_;
    int mode_;
  };

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

// A Runtime that does as the driver does, but for what is overridden.
class ForwardingRuntime : public StreamRuntime {
 public:
  explicit ForwardingRuntime(DriverRuntime& driver) : driver_(driver) {}
  int get_device(int* device) override { return driver_.get_device(device); }
  int device_get_attribute(int* value, int attribute, int device) override {
    return driver_.device_get_attribute(value, attribute, device);
  }
  int kernel_get_attribute(int* value, int attribute, KernelImage& kernel, int device) override {
    return driver_.kernel_get_attribute(value, attribute, kernel, device);
  }
  int kernel_set_attribute(KernelImage& kernel, int attribute, int value, int device) override {
    return driver_.kernel_set_attribute(kernel, attribute, value, device);
  }
  int tensor_map_encode_tiled(void* map, int type, std::uint32_t rank, void* address, const std::uint64_t* sizes,
                              const std::uint64_t* strides, const std::uint32_t* box, const std::uint32_t* steps,
                              int interleave, int swizzle, int l2_promotion, int fill) override {
    return driver_.tensor_map_encode_tiled(map, type, rank, address, sizes, strides, box, steps, interleave, swizzle,
                                           l2_promotion, fill);
  }
  std::string describe(int status) override { return driver_.describe(status); }

 protected:
  DriverRuntime& driver_;
};

}  // namespace msa_ops

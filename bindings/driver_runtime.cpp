#include "driver_runtime.hpp"

#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <stdexcept>

namespace msa_ops {
namespace {

// Layout of CUlaunchConfig.
struct DriverLaunchConfig {
  unsigned grid[3];
  unsigned block[3];
  unsigned shared_memory;  // bytes
  void* stream;
  const LaunchAttribute* attributes;
  unsigned num_attributes;
};

// Layout of CUDA_KERNEL_NODE_PARAMS (version 2).
struct KernelNodeParameters {
  void* function;
  unsigned grid[3];
  unsigned block[3];
  unsigned shared_memory;  // bytes
  void** parameters;
  void** extra;
  void* kernel;
  void* context;
};

// Layout of CUDA_MEMSET_NODE_PARAMS.
struct MemsetNodeParameters {
  std::uint64_t address;
  std::size_t pitch;
  unsigned value;
  unsigned element_bytes;
  std::size_t width;  // elements
  std::size_t height;
};

constexpr int kMaxDevices = 64;
constexpr unsigned kNonBlockingStream = 1;
constexpr int kRelaxedCapture = 2;
constexpr int kInvalidValue = 1;  // CUDA_ERROR_INVALID_VALUE

void check(int status, const char* what, DriverRuntime& driver) {
  if (status != 0) throw std::runtime_error(std::string(what) + " failed: " + driver.describe(status));
}

}  // namespace

struct DriverRuntime::Functions {
  SharedLibrary library{"libcuda.so.1"};
  int (*init)(unsigned);
  int (*get_error_name)(int, const char**);
  int (*get_error_string)(int, const char**);
  int (*ctx_get_current)(void**);
  int (*ctx_push_current)(void*);
  int (*ctx_pop_current)(void**);
  int (*ctx_get_device)(int*);
  int (*primary_ctx_retain)(void**, int);
  int (*device_get_attribute)(int*, int, int);
  int (*library_load_data)(void**, const void*, void*, void**, unsigned, void*, void**, unsigned);
  int (*library_get_kernel)(void**, void*, const char*);
  int (*kernel_get_attribute)(int*, int, void*, int);
  int (*kernel_set_attribute)(int, int, void*, int);
  int (*launch_kernel_ex)(const DriverLaunchConfig*, void*, void**, void**);
  int (*memset_async)(std::uint64_t, unsigned char, std::size_t, void*);
  int (*stream_create)(void**, unsigned);
  int (*stream_destroy)(void*);
  int (*stream_is_capturing)(void*, int*);
  int (*exchange_capture_mode)(int*);
  int (*stream_begin_capture)(void*, int);
  int (*stream_end_capture)(void*, void**);
  int (*stream_get_capture_info)(void*, int*, std::uint64_t*, void**, void* const**, const void**, std::size_t*);
  int (*graph_instantiate)(void**, void*, unsigned long long);
  int (*graph_launch)(void*, void*);
  int (*graph_exec_destroy)(void*);
  int (*graph_destroy)(void*);
  int (*graph_exec_kernel_node_set_params)(void*, void*, const KernelNodeParameters*);
  int (*graph_exec_memset_node_set_params)(void*, void*, const MemsetNodeParameters*, void*);
  int (*tensor_map_encode_tiled)(void*, int, std::uint32_t, void*, const std::uint64_t*, const std::uint64_t*,
                                 const std::uint32_t*, const std::uint32_t*, int, int, int, int);
  std::array<std::atomic<void*>, kMaxDevices> contexts{};
  std::mutex mutex;  // guards libraries and the loading of kernels
  std::map<const void*, void*> libraries;  // code -> CUlibrary

  template <typename Function>
  void load(Function& function, const char* name) {
    function = reinterpret_cast<Function>(library.symbol(name));
    if (function == nullptr) {
      throw std::runtime_error(std::string("the CUDA driver lacks ") + name + "; a driver of CUDA 12.3 or newer has it");
    }
  }
};

DriverRuntime& DriverRuntime::instance() {
  // Never destroyed: kernels may outlive static destruction order. A failed construction is tried again.
  static DriverRuntime* driver = new DriverRuntime();
  return *driver;
}

DriverRuntime::DriverRuntime() : f_(std::make_unique<Functions>()) {
  if (!f_->library.valid()) throw std::runtime_error("no CUDA driver: " + f_->library.error());
  f_->load(f_->init, "cuInit");
  f_->load(f_->get_error_name, "cuGetErrorName");
  f_->load(f_->get_error_string, "cuGetErrorString");
  f_->load(f_->ctx_get_current, "cuCtxGetCurrent");
  f_->load(f_->ctx_push_current, "cuCtxPushCurrent_v2");
  f_->load(f_->ctx_pop_current, "cuCtxPopCurrent_v2");
  f_->load(f_->ctx_get_device, "cuCtxGetDevice");
  f_->load(f_->primary_ctx_retain, "cuDevicePrimaryCtxRetain");
  f_->load(f_->device_get_attribute, "cuDeviceGetAttribute");
  f_->load(f_->library_load_data, "cuLibraryLoadData");
  f_->load(f_->library_get_kernel, "cuLibraryGetKernel");
  f_->load(f_->kernel_get_attribute, "cuKernelGetAttribute");
  f_->load(f_->kernel_set_attribute, "cuKernelSetAttribute");
  f_->load(f_->launch_kernel_ex, "cuLaunchKernelEx");
  f_->load(f_->memset_async, "cuMemsetD8Async");
  f_->load(f_->stream_create, "cuStreamCreate");
  f_->load(f_->stream_destroy, "cuStreamDestroy_v2");
  f_->load(f_->stream_is_capturing, "cuStreamIsCapturing");
  f_->load(f_->exchange_capture_mode, "cuThreadExchangeStreamCaptureMode");
  f_->load(f_->stream_begin_capture, "cuStreamBeginCapture_v2");
  f_->load(f_->stream_end_capture, "cuStreamEndCapture");
  f_->load(f_->stream_get_capture_info, "cuStreamGetCaptureInfo_v3");
  f_->load(f_->graph_instantiate, "cuGraphInstantiateWithFlags");
  f_->load(f_->graph_launch, "cuGraphLaunch");
  f_->load(f_->graph_exec_destroy, "cuGraphExecDestroy");
  f_->load(f_->graph_destroy, "cuGraphDestroy");
  f_->load(f_->graph_exec_kernel_node_set_params, "cuGraphExecKernelNodeSetParams_v2");
  f_->load(f_->graph_exec_memset_node_set_params, "cuGraphExecMemsetNodeSetParams");
  f_->load(f_->tensor_map_encode_tiled, "cuTensorMapEncodeTiled");
  check(f_->init(0), "cuInit", *this);
}

int DriverRuntime::resolve(KernelImage& kernel, void** handle) {
  *handle = kernel.driver_kernel.load(std::memory_order_acquire);
  if (*handle != nullptr) return 0;
  const std::lock_guard<std::mutex> lock(f_->mutex);
  *handle = kernel.driver_kernel.load(std::memory_order_acquire);
  if (*handle != nullptr) return 0;
  auto known = f_->libraries.find(kernel.code);
  if (known == f_->libraries.end()) {
    void* library = nullptr;  // kept only if it was loaded, so that a failed load is tried again
    const int status = f_->library_load_data(&library, kernel.code, nullptr, nullptr, 0, nullptr, nullptr, 0);
    if (status != 0) return status;
    known = f_->libraries.emplace(kernel.code, library).first;
  }
  const int status = f_->library_get_kernel(handle, known->second, kernel.name.c_str());
  if (status == 0) kernel.driver_kernel.store(*handle, std::memory_order_release);
  return status;
}

int DriverRuntime::get_device(int* device) { return f_->ctx_get_device(device); }

int DriverRuntime::device_get_attribute(int* value, int attribute, int device) {
  return f_->device_get_attribute(value, attribute, device);
}

int DriverRuntime::kernel_get_attribute(int* value, int attribute, KernelImage& kernel, int device) {
  void* handle = nullptr;
  const int status = resolve(kernel, &handle);
  return status != 0 ? status : f_->kernel_get_attribute(value, attribute, handle, device);
}

int DriverRuntime::kernel_set_attribute(KernelImage& kernel, int attribute, int value, int device) {
  void* handle = nullptr;
  const int status = resolve(kernel, &handle);
  return status != 0 ? status : f_->kernel_set_attribute(attribute, value, handle, device);
}

int DriverRuntime::launch(const LaunchConfig& config, KernelImage& kernel, void** parameters) {
  void* handle = nullptr;
  if (const int status = resolve(kernel, &handle); status != 0) return status;
  const DriverLaunchConfig driver_config{
      {config.grid[0], config.grid[1], config.grid[2]},
      {config.block[0], config.block[1], config.block[2]},
      static_cast<unsigned>(config.dynamic_shared_memory),
      config.stream,
      config.attributes,
      config.num_attributes,
  };
  return f_->launch_kernel_ex(&driver_config, handle, parameters, nullptr);
}

int DriverRuntime::clear(std::uint64_t address, std::size_t num_bytes, void* stream) {
  return f_->memset_async(address, 0, num_bytes, stream);
}

bool DriverRuntime::is_plain(void* stream) {
  int status = 0;
  return f_->stream_is_capturing(stream, &status) == 0 && status == 0;
}

int DriverRuntime::begin_capture(void** stream) {
  if (const int status = f_->stream_create(stream, kNonBlockingStream); status != 0) return status;
  const int status = f_->stream_begin_capture(*stream, kRelaxedCapture);
  if (status != 0) f_->stream_destroy(*stream);
  return status;
}

int DriverRuntime::last_captured(void* stream, void** node) {
  int state = 0;
  void* const* dependencies = nullptr;
  const void* edges = nullptr;
  std::size_t count = 0;
  const int status = f_->stream_get_capture_info(stream, &state, nullptr, nullptr, &dependencies, &edges, &count);
  if (status != 0) return status;
  if (count != 1) return kInvalidValue;
  *node = dependencies[0];
  return 0;
}

int DriverRuntime::end_capture(void* stream, void** graph) {
  const int status = f_->stream_end_capture(stream, graph);
  f_->stream_destroy(stream);
  return status;
}

int DriverRuntime::instantiate(void* graph, void** executable) { return f_->graph_instantiate(executable, graph, 0); }

int DriverRuntime::set_kernel_node(void* executable, void* node, const LaunchConfig& config, KernelImage& kernel,
                                   void** parameters) {
  void* handle = nullptr;
  if (const int status = resolve(kernel, &handle); status != 0) return status;
  const KernelNodeParameters set{
      nullptr,
      {config.grid[0], config.grid[1], config.grid[2]},
      {config.block[0], config.block[1], config.block[2]},
      static_cast<unsigned>(config.dynamic_shared_memory),
      parameters,
      nullptr,
      handle,
      nullptr,
  };
  return f_->graph_exec_kernel_node_set_params(executable, node, &set);
}

int DriverRuntime::set_clear_node(void* executable, void* node, std::uint64_t address, std::size_t num_bytes) {
  void* context = nullptr;
  if (const int status = f_->ctx_get_current(&context); status != 0) return status;
  const MemsetNodeParameters set{address, 0, 0, 1, num_bytes, 1};
  return f_->graph_exec_memset_node_set_params(executable, node, &set, context);
}

int DriverRuntime::launch_graph(void* executable, void* stream) { return f_->graph_launch(executable, stream); }

void DriverRuntime::destroy_executable(void* executable) { f_->graph_exec_destroy(executable); }

void DriverRuntime::destroy_graph(void* graph) { f_->graph_destroy(graph); }

DriverRuntime::RelaxedCapture::RelaxedCapture(DriverRuntime& driver) : driver_(driver), mode_(kRelaxedCapture) {
  driver_.f_->exchange_capture_mode(&mode_);
}

DriverRuntime::RelaxedCapture::~RelaxedCapture() { driver_.f_->exchange_capture_mode(&mode_); }

int DriverRuntime::tensor_map_encode_tiled(void* map, int type, std::uint32_t rank, void* address, const std::uint64_t* sizes,
                                           const std::uint64_t* strides, const std::uint32_t* box, const std::uint32_t* steps,
                                           int interleave, int swizzle, int l2_promotion, int fill) {
  return f_->tensor_map_encode_tiled(map, type, rank, address, sizes, strides, box, steps, interleave, swizzle,
                                     l2_promotion, fill);
}

std::string DriverRuntime::describe(int status) {
  const char* name = nullptr;
  const char* text = nullptr;
  f_->get_error_name(status, &name);
  f_->get_error_string(status, &text);
  return (name != nullptr ? name : "CUresult " + std::to_string(status)) + std::string(text != nullptr ? ": " : "") +
         (text != nullptr ? text : "");
}

DriverRuntime::DeviceScope::DeviceScope(DriverRuntime& driver, int device) : driver_(driver) {
  if (device < 0 || device >= kMaxDevices) throw std::invalid_argument("device: " + std::to_string(device));
  auto& slot = driver.f_->contexts[device];
  void* wanted = slot.load(std::memory_order_acquire);
  if (wanted == nullptr) {
    check(driver.f_->primary_ctx_retain(&wanted, device), "cuDevicePrimaryCtxRetain", driver);
    slot.store(wanted, std::memory_order_release);  // kept for the life of the process, as torch does
  }
  void* current = nullptr;
  check(driver.f_->ctx_get_current(&current), "cuCtxGetCurrent", driver);
  if (current != wanted) {
    check(driver.f_->ctx_push_current(wanted), "cuCtxPushCurrent", driver);
    pushed_ = true;
  }
}

DriverRuntime::DeviceScope::~DeviceScope() {
  if (pushed_) {
    void* context = nullptr;
    driver_.f_->ctx_pop_current(&context);
  }
}

}  // namespace msa_ops

#include "hip_runtime.hpp"

#include <link.h>

#include <array>
#include <cstring>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <tuple>

#include "shared_library.hpp"

namespace msa_ops {
namespace {

// Values of HIP_LAUNCH_PARAM_* in the HIP documentation: arguments as one buffer.
void* const kBufferPointer = reinterpret_cast<void*>(1);
void* const kBufferSize = reinterpret_cast<void*>(2);
void* const kEnd = reinterpret_cast<void*>(3);
constexpr int kCaptureModeRelaxed = 2;  // hipStreamCaptureModeRelaxed

// The copy that torch (or anyone else) has already loaded must be used: streams belong to it.
std::string loaded_library() {
  std::string found;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* result) {
        const char* slash = std::strrchr(info->dlpi_name, '/');
        const char* name = slash != nullptr ? slash + 1 : info->dlpi_name;
        if (std::strncmp(name, "libamdhip64.so", 14) != 0) return 0;
        *static_cast<std::string*>(result) = info->dlpi_name;
        return 1;
      },
      &found);
  return found;
}

std::unique_ptr<SharedLibrary> open_library() {
  if (const std::string path = loaded_library(); !path.empty()) return std::make_unique<SharedLibrary>(path.c_str());
  std::unique_ptr<SharedLibrary> library;
  for (const char* name : {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so"}) {
    library = std::make_unique<SharedLibrary>(name);
    if (library->valid()) break;
  }
  return library;
}

}  // namespace

struct HipRuntime::Functions {
  std::unique_ptr<SharedLibrary> library = open_library();
  const char* (*get_error_name)(int);
  const char* (*get_error_string)(int);
  int (*get_device)(int*);
  int (*set_device)(int);
  int (*module_load_data)(void**, const void*);
  int (*module_get_function)(void**, void*, const char*);
  int (*module_launch_kernel)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*,
                              void**, void**);
  int (*get_last_error)();
  int (*exchange_capture_mode)(int*);
  std::mutex mutex;  // guards what follows
  std::map<std::tuple<int, const void*, std::string>, void*> functions;  // device, code, kernel -> hipFunction_t

  template <typename Function>
  void load(Function& function, const char* name) {
    function = reinterpret_cast<Function>(library->symbol(name));
    if (function == nullptr) throw std::runtime_error(std::string("libamdhip64 lacks ") + name);
  }
};

HipRuntime& HipRuntime::instance() {
  // Never destroyed: kernels may outlive static destruction order. A failed construction is tried again.
  static HipRuntime* runtime = new HipRuntime();
  return *runtime;
}

HipRuntime::HipRuntime() : f_(std::make_unique<Functions>()) {
  if (!f_->library->valid()) throw std::runtime_error("no HIP runtime: " + f_->library->error());
  f_->load(f_->get_error_name, "hipGetErrorName");
  f_->load(f_->get_error_string, "hipGetErrorString");
  f_->load(f_->get_device, "hipGetDevice");
  f_->load(f_->set_device, "hipSetDevice");
  f_->load(f_->module_load_data, "hipModuleLoadData");
  f_->load(f_->module_get_function, "hipModuleGetFunction");
  f_->load(f_->module_launch_kernel, "hipModuleLaunchKernel");
  f_->load(f_->get_last_error, "hipGetLastError");
  f_->load(f_->exchange_capture_mode, "hipThreadExchangeStreamCaptureMode");
}

void HipRuntime::check(int status, const char* what, const AmdLaunch& launch) const {
  if (status == 0) return;
  f_->get_last_error();  // or the next one who asks for it, which torch does after each launch, takes it for his own
  const char* name = f_->get_error_name(status);
  const char* text = f_->get_error_string(status);
  const auto axes = [](const std::array<unsigned, 3>& sizes) {
    return std::to_string(sizes[0]) + " x " + std::to_string(sizes[1]) + " x " + std::to_string(sizes[2]);
  };
  throw std::runtime_error("kernel " + std::string(launch.kernel) + " (" + axes(launch.grid) + " workgroups of " +
                           axes(launch.block) + ", " + std::to_string(launch.dynamic_lds) +
                           " bytes of dynamic LDS, device " + std::to_string(launch.device) + "): " + what +
                           " failed: " + (name != nullptr ? name : "hipError_t " + std::to_string(status)) +
                           (text != nullptr ? std::string(": ") + text : ""));
}

void* HipRuntime::resolve(const AmdLaunch& launch) {
  const std::lock_guard<std::mutex> lock(f_->mutex);
  const std::tuple<int, const void*, std::string> key{launch.device, launch.code, launch.kernel};
  if (const auto place = f_->functions.find(key); place != f_->functions.end()) return place->second;
  // A first call may come while torch captures a graph, in the mode in which loading is not allowed.
  struct Relaxed {
    HipRuntime& runtime;
    int mode = kCaptureModeRelaxed;
    explicit Relaxed(HipRuntime& runtime) : runtime(runtime) { runtime.f_->exchange_capture_mode(&mode); }
    ~Relaxed() { runtime.f_->exchange_capture_mode(&mode); }
  } relaxed{*this};
  void* module = nullptr;  // stays loaded for the life of the process
  void* function = nullptr;
  check(f_->module_load_data(&module, launch.code), "hipModuleLoadData", launch);
  check(f_->module_get_function(&function, module, launch.kernel), "hipModuleGetFunction", launch);
  f_->functions.emplace(key, function);
  return function;
}

void HipRuntime::launch(const AmdLaunch& launch) {
  int previous = 0;
  check(f_->get_device(&previous), "hipGetDevice", launch);
  struct Restore {
    HipRuntime& runtime;
    int device, previous;
    ~Restore() {
      if (device != previous) runtime.f_->set_device(previous);
    }
  } restore{*this, launch.device, previous};
  if (launch.device != previous) check(f_->set_device(launch.device), "hipSetDevice", launch);
  void* function = resolve(launch);
  std::vector<std::uint8_t> arguments = launch.kernarg;
  std::size_t size = arguments.size();
  void* extra[] = {kBufferPointer, arguments.data(), kBufferSize, &size, kEnd};
  check(f_->module_launch_kernel(function, launch.grid[0], launch.grid[1], launch.grid[2], launch.block[0],
                                 launch.block[1], launch.block[2], launch.dynamic_lds, launch.stream, nullptr, extra),
        "hipModuleLaunchKernel", launch);
}

}  // namespace msa_ops

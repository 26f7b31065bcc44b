// The C functions that exported kernel objects call. Hidden from other libraries: the objects are linked into this
// module, and another package's definitions of the same names must not be taken for ours.
#include "runtime.hpp"

#include <map>
#include <mutex>
#include <string>
#include <utility>

namespace msa_ops {
namespace {

thread_local Runtime* t_runtime = nullptr;

constexpr int kNotInitialized = 3;  // CUDA_ERROR_NOT_INITIALIZED

KernelImage* intern(const void* code, const char* name) {
  static std::mutex mutex;
  static auto* images = new std::map<std::pair<const void*, std::string>, KernelImage>();  // never destroyed
  const std::lock_guard<std::mutex> lock(mutex);
  auto [place, is_new] = images->try_emplace({code, name});
  if (is_new) {
    place->second.code = code;
    place->second.name = name;
  }
  return &place->second;
}

}  // namespace

Runtime* current_runtime() { return t_runtime; }

RuntimeScope::RuntimeScope(Runtime& runtime) : previous_(t_runtime) { t_runtime = &runtime; }
RuntimeScope::~RuntimeScope() { t_runtime = previous_; }

}  // namespace msa_ops

using msa_ops::current_runtime;

#define SEAM extern "C" __attribute__((visibility("hidden")))
#define FORWARD(call) (current_runtime() != nullptr ? current_runtime()->call : msa_ops::kNotInitialized)

// A library handle is the address of its code; the driver sees it when a kernel of it first runs there.
SEAM int _cudaLibraryLoadData(void** library, const void* code, void*, void**, unsigned, void*, void**, unsigned) {
  *library = const_cast<void*>(code);
  return 0;
}

SEAM int _cudaLibraryGetKernel(void** kernel, void* library, const char* name) {
  *kernel = msa_ops::intern(library, name);
  return 0;
}

SEAM int _cudaGetDevice(int* device) { return FORWARD(get_device(device)); }

SEAM int _cudaDeviceGetAttribute(int* value, int attribute, int device) {
  return FORWARD(device_get_attribute(value, attribute, device));
}

SEAM int _cuKernelGetAttribute(int* value, int attribute, msa_ops::KernelImage* kernel, int device) {
  return FORWARD(kernel_get_attribute(value, attribute, *kernel, device));
}

SEAM int _cudaFuncSetAttribute(msa_ops::KernelImage* kernel, int attribute, int value) {
  int device = 0;
  const int status = FORWARD(get_device(&device));
  return status != 0 ? status : FORWARD(kernel_set_attribute(*kernel, attribute, value, device));
}

SEAM int _cudaKernelSetAttributeForDevice(msa_ops::KernelImage* kernel, int attribute, int value, int device) {
  return FORWARD(kernel_set_attribute(*kernel, attribute, value, device));
}

SEAM int _cudaLaunchKernelEx(const msa_ops::LaunchConfig* config, msa_ops::KernelImage* kernel, void** parameters) {
  return FORWARD(launch(*config, *kernel, parameters));
}

SEAM int _cuTensorMapEncodeTiled(void* map, int type, std::uint32_t rank, void* address, const std::uint64_t* sizes,
                                 const std::uint64_t* strides, const std::uint32_t* box, const std::uint32_t* steps,
                                 int interleave, int swizzle, int l2_promotion, int fill) {
  return FORWARD(tensor_map_encode_tiled(map, type, rank, address, sizes, strides, box, steps, interleave, swizzle,
                                         l2_promotion, fill));
}

// Functions compiled for TVM FFI load their library at the first call: `state` is 0 until then. `init` gives the library,
// `load` prepares its kernels for a device; both return the runtime's errors. `set_error(kind, message)` makes the error
// that the caller raises for a status that is not 0.
SEAM int cuda_dialect_init_library_once(std::int64_t* state, int (*init)(void**), int (*load)(void**, int),
                                        void (*set_error)(const char*, const char*)) {
  static auto* mutex = new std::mutex();
  const std::lock_guard<std::mutex> lock(*mutex);
  if (*state != 0) return 0;
  void* library = nullptr;
  int status = init(&library);
  if (status == 0) status = load(&library, 0);
  if (status == 0) *state = 1;
  else set_error("RuntimeError", ("the kernels cannot be loaded: CUDA error " + std::to_string(status)).c_str());
  return status;
}

SEAM void cuda_dialect_unload_library_once(std::int64_t*) {}  // nothing was loaded that has to go

namespace msa_ops {

std::vector<SeamFunction> seam_functions() {
#define NAMED(function) {#function, reinterpret_cast<const void*>(&function)}
  return {NAMED(_cudaLibraryLoadData),
          NAMED(_cudaLibraryGetKernel),
          NAMED(_cudaGetDevice),
          NAMED(_cudaDeviceGetAttribute),
          NAMED(_cuKernelGetAttribute),
          NAMED(_cudaFuncSetAttribute),
          NAMED(_cudaKernelSetAttributeForDevice),
          NAMED(_cudaLaunchKernelEx),
          NAMED(_cuTensorMapEncodeTiled),
          NAMED(cuda_dialect_init_library_once),
          NAMED(cuda_dialect_unload_library_once)};
#undef NAMED
}

}  // namespace msa_ops

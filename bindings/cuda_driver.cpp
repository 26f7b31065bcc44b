#include "cuda_driver.hpp"

#include "shared_library.hpp"

namespace msa_ops {
namespace {

// Values of CUdevice_attribute in the driver API's documentation.
constexpr int kMultiprocessorCount = 16;
constexpr int kComputeCapabilityMajor = 75;
constexpr int kComputeCapabilityMinor = 76;
constexpr int kMaxSharedMemoryPerBlockOptin = 97;

template <typename Function>
Function load(const SharedLibrary& library, const char* name) {
  return reinterpret_cast<Function>(library.symbol(name));
}

}  // namespace

CudaDriver query_cuda_driver() {
  CudaDriver result;
  // Never closed: the driver must stay loaded while torch may use it too.
  static const SharedLibrary* library = new SharedLibrary("libcuda.so.1");
  if (!library->valid()) {
    result.error = library->error();
    return result;
  }
  const auto init = load<int (*)(unsigned)>(*library, "cuInit");
  const auto version = load<int (*)(int*)>(*library, "cuDriverGetVersion");
  const auto count = load<int (*)(int*)>(*library, "cuDeviceGetCount");
  const auto get = load<int (*)(int*, int)>(*library, "cuDeviceGet");
  const auto name = load<int (*)(char*, int, int)>(*library, "cuDeviceGetName");
  const auto attribute = load<int (*)(int*, int, int)>(*library, "cuDeviceGetAttribute");
  if (!init || !version || !count || !get || !name || !attribute) {
    result.error = "libcuda.so.1 lacks a function of the driver API";
    return result;
  }
  if (const int status = init(0); status != 0) {
    result.error = "cuInit failed with CUresult " + std::to_string(status);
    return result;
  }
  version(&result.version);
  int devices = 0;
  if (const int status = count(&devices); status != 0) {
    result.error = "cuDeviceGetCount failed with CUresult " + std::to_string(status);
    return result;
  }
  if (devices == 0) result.error = "the driver reports no device";
  for (int ordinal = 0; ordinal < devices; ++ordinal) {
    int device = 0;
    char text[256] = {};
    if (get(&device, ordinal) != 0 || name(text, sizeof(text), device) != 0) continue;
    CudaDevice entry{ordinal, text, 0, 0, 0, 0};
    attribute(&entry.major, kComputeCapabilityMajor, device);
    attribute(&entry.minor, kComputeCapabilityMinor, device);
    attribute(&entry.multiprocessors, kMultiprocessorCount, device);
    attribute(&entry.shared_memory_per_block_optin, kMaxSharedMemoryPerBlockOptin, device);
    result.devices.push_back(entry);
  }
  return result;
}

}  // namespace msa_ops

// The seam between compiled kernels and whatever executes them.
//
// A kernel object exported by CuTe-DSL holds its host launcher and its machine code, and calls about ten C functions
// whose names are those of the CUDA runtime with an underscore before them. seam.cpp defines these and forwards them
// to the Runtime of the calling thread: the CUDA driver, or something that stands in for it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace msa_ops {

// Layout of cudaLaunchAttribute: an id, padding to 8 bytes, and a union of 64 bytes.
struct LaunchAttribute {
  int id;
  int padding;
  unsigned char value[64];
};
static_assert(sizeof(LaunchAttribute) == 72);

// Layout of cudaLaunchConfig_t.
struct LaunchConfig {
  unsigned grid[3];
  unsigned block[3];
  std::size_t dynamic_shared_memory;  // bytes
  void* stream;
  const LaunchAttribute* attributes;
  unsigned num_attributes;
};

constexpr int kClusterDimension = 4;  // id of a launch attribute: three unsigned
constexpr int kProgrammaticSerialization = 6;  // an int: the launch may begin before the one before it has ended

// One kernel inside the machine code that an object carries. There is one for each (code, name), whatever executes it,
// since objects keep the handle in a variable of their own.
struct KernelImage {
  const void* code;
  std::string name;  // mangled
  std::atomic<void*> driver_kernel{nullptr};  // CUkernel, once the driver has loaded it
};

// One object per way to execute kernels. Every function returns a CUresult; 0 is success.
class Runtime {
 public:
  virtual ~Runtime() = default;
  virtual int get_device(int* device) = 0;
  virtual int device_get_attribute(int* value, int attribute, int device) = 0;
  virtual int kernel_get_attribute(int* value, int attribute, KernelImage& kernel, int device) = 0;
  virtual int kernel_set_attribute(KernelImage& kernel, int attribute, int value, int device) = 0;
  virtual int launch(const LaunchConfig& config, KernelImage& kernel, void** parameters) = 0;
  // As cuTensorMapEncodeTiled.
  virtual int tensor_map_encode_tiled(void* map, int type, std::uint32_t rank, void* address,
                                      const std::uint64_t* sizes, const std::uint64_t* strides,
                                      const std::uint32_t* box, const std::uint32_t* steps, int interleave,
                                      int swizzle, int l2_promotion, int fill) = 0;
  // Name and text of a CUresult.
  virtual std::string describe(int status) = 0;
};

// The runtime that the calling thread's kernels run on; set for the length of one launch.
Runtime* current_runtime();

class RuntimeScope {
 public:
  explicit RuntimeScope(Runtime& runtime);
  ~RuntimeScope();
  RuntimeScope(const RuntimeScope&) = delete;
  RuntimeScope& operator=(const RuntimeScope&) = delete;

 private:
  Runtime* previous_;
};

// The functions of seam.cpp, for objects that are loaded from elsewhere.
struct SeamFunction {
  const char* name;
  const void* address;
};
std::vector<SeamFunction> seam_functions();

}  // namespace msa_ops

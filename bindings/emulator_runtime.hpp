// Kernels on the emulator: the Runtime that executes the PTX of what a host launcher launches.
#pragma once

#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "device/chip.hpp"
#include "device/global_memory.hpp"
#include "device/counters.hpp"
#include "device/grid.hpp"
#include "ptx/kernel.hpp"
#include "runtime.hpp"

namespace msa_ops {

class EmulatorRuntime : public Runtime {
 public:
  // A launch with everything that it needs: the launcher's own memory ends with its call.
  struct Launch {
    std::unique_ptr<emulator::ptx::Kernel> kernel;
    emulator::LaunchShape shape;
    std::vector<std::string> parameters;
    bool begins_early = false;  // while the launch before may still run
    std::uint64_t stream = 0;   // its handle
  };

  // `modules` are PTX texts that hold the kernels that the launcher launches. `options` are those of each launch.
  EmulatorRuntime(std::vector<std::string> modules, std::vector<emulator::Allocation> allocations,
                  emulator::Chip chip, const emulator::RunOptions& options);

  int get_device(int* device) override;
  int device_get_attribute(int* value, int attribute, int device) override;
  int kernel_get_attribute(int* value, int attribute, KernelImage& kernel, int device) override;
  int kernel_set_attribute(KernelImage& kernel, int attribute, int value, int device) override;
  int launch(const LaunchConfig& config, KernelImage& kernel, void** parameters) override;
  int tensor_map_encode_tiled(void* map, int type, std::uint32_t rank, void* address, const std::uint64_t* sizes,
                              const std::uint64_t* strides, const std::uint32_t* box, const std::uint32_t* steps,
                              int interleave, int swizzle, int l2_promotion, int fill) override;
  std::string describe(int status) override;

  // What the launch before the first one of this runtime may still be writing, if that one may begin early.
  void set_pending(std::vector<emulator::GlobalMemory::Pending> pending) { pending_ = std::move(pending); }

  // Host launchers are C and let no exception through: a launch that failed keeps it here and returns a status.
  void rethrow() const;

  emulator::Counters counters;

 protected:
  Launch launch_of(const LaunchConfig& config, KernelImage& kernel, void** parameters) const;
  // The text that holds a kernel.
  virtual const std::string& module_with(const KernelImage& kernel) const;
  virtual void execute(Launch launch);

  std::exception_ptr failure_;

 private:
  std::vector<std::string> modules_;
  emulator::GlobalMemory memory_;
  emulator::Chip chip_;
  emulator::RunOptions options_;
  std::vector<emulator::GlobalMemory::Pending> pending_;
  std::map<const KernelImage*, int> dynamic_shared_memory_;  // what each kernel was allowed
  std::map<const KernelImage*, bool> not_portable_;          // whether it was allowed clusters of more than 8 blocks
};

}  // namespace msa_ops

// Kernels on a real AMD GPU: the AmdRuntime over libamdhip64, opened when it is first used.
#pragma once

#include <memory>

#include "amd_runtime.hpp"

namespace msa_ops {

class HipRuntime : public AmdRuntime {
 public:
  // The process's one; throws std::runtime_error if there is no usable library.
  static HipRuntime& instance();

  void launch(const AmdLaunch& launch) override;

 private:
  HipRuntime();
  // hipFunction_t of a kernel on the current device, loading the code at the first call.
  void* resolve(const AmdLaunch& launch);
  void check(int status, const char* what, const AmdLaunch& launch) const;

  struct Functions;
  std::unique_ptr<Functions> f_;
};

}  // namespace msa_ops

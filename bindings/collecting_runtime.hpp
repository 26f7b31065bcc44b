// Several emulated devices: each one's host launcher runs on a Runtime that keeps its launches, which are then executed
// together, since their kernels may wait for each other.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "emulator_runtime.hpp"

namespace msa_ops {

class CollectingRuntime : public EmulatorRuntime {
 public:
  // As EmulatorRuntime, without memory: `device` is what the launcher is told to be on.
  CollectingRuntime(std::vector<std::string> modules, const emulator::Chip& chip, int device)
      : EmulatorRuntime(std::move(modules), {}, chip, {}), device_(device) {}

  int get_device(int* device) override {
    *device = device_;
    return 0;
  }

  std::vector<Launch> launches;

 protected:
  void execute(Launch launch) override { launches.push_back(std::move(launch)); }

 private:
  int device_;
};

}  // namespace msa_ops

// What torch keeps of a thread about how ops are called: modes, transforms, tracing, the profiler, gradients.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <vector>

namespace msa_ops {

class TorchState {
 public:
  // Asked by callables without arguments. obstacles: calls are not plain while one of them gives something true.
  TorchState(const pybind11::list& obstacles, pybind11::object grad_enabled);

  // Asked of torch's libraries, which takes a hundredth of the time: by functions that are no promise of torch. Null if
  // the libraries of this process lack one of them.
  static std::shared_ptr<TorchState> without_python();

  bool is_plain() const;
  bool grad_enabled() const;

 private:
  struct Functions;
  TorchState() = default;

  std::vector<pybind11::object> obstacles_;
  pybind11::object grad_enabled_;
  std::shared_ptr<const Functions> functions_;
};

}  // namespace msa_ops

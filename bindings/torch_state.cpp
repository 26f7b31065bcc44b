#include "torch_state.hpp"

#include <dlfcn.h>

#include <cstdint>
#include <utility>

namespace py = pybind11;

namespace msa_ops {
namespace {

// As the standard library lays out a vector and a shared_ptr.
struct Vector {
  const void* begin;
  const void* end;
};
struct SharedPointer {
  const void* value;
};

template <typename Function>
bool load(Function& function, const char* library, const char* name) {
  void* handle = dlopen(library, RTLD_NOW | RTLD_NOLOAD);  // never closed: torch stays loaded
  function = handle == nullptr ? nullptr : reinterpret_cast<Function>(dlsym(handle, name));
  return function != nullptr;
}

// Whether a callable's answer is true; throws what it raises.
bool says_yes(const py::object& question) {
  const py::object answer = py::reinterpret_steal<py::object>(PyObject_CallNoArgs(question.ptr()));
  if (!answer) throw py::error_already_set();
  const int yes = PyObject_IsTrue(answer.ptr());
  if (yes < 0) throw py::error_already_set();
  return yes != 0;
}

}  // namespace

struct TorchState::Functions {
  std::int64_t (*dispatch_modes)();            // c10::impl::TorchDispatchModeTLS::stack_len
  std::int64_t (*function_modes)();            // at::impl::PythonTorchFunctionTLS::stack_len
  const Vector& (*transforms)();               // at::functorch::getDynamicLayerStack
  const SharedPointer& (*tracing)();           // torch::jit::tracer::getTracingState
  bool (*profiling)();                         // torch::profiler::impl::profilerEnabled
  bool (*grad_enabled)();                      // c10::GradMode::is_enabled
};

TorchState::TorchState(const py::list& obstacles, py::object grad_enabled) : grad_enabled_(std::move(grad_enabled)) {
  for (const py::handle each : obstacles) obstacles_.push_back(py::reinterpret_borrow<py::object>(each));
}

std::shared_ptr<TorchState> TorchState::without_python() {
  auto found = std::make_shared<Functions>();
  const bool complete =
      load(found->dispatch_modes, "libc10.so", "_ZN3c104impl20TorchDispatchModeTLS9stack_lenEv") &&
      load(found->function_modes, "libtorch_cpu.so", "_ZN2at4impl22PythonTorchFunctionTLS9stack_lenEv") &&
      load(found->transforms, "libtorch_cpu.so", "_ZN2at9functorch20getDynamicLayerStackEv") &&
      load(found->tracing, "libtorch_cpu.so", "_ZN5torch3jit6tracer15getTracingStateEv") &&
      load(found->profiling, "libtorch_cpu.so", "_ZN5torch8profiler4impl15profilerEnabledEv") &&
      load(found->grad_enabled, "libc10.so", "_ZN3c108GradMode10is_enabledEv");
  if (!complete) return nullptr;
  std::shared_ptr<TorchState> state(new TorchState());
  state->functions_ = std::move(found);
  return state;
}

bool TorchState::is_plain() const {
  if (functions_ == nullptr) {
    for (const py::object& obstacle : obstacles_) {
      if (says_yes(obstacle)) return false;
    }
    return true;
  }
  const Functions& ask = *functions_;
  const Vector& transforms = ask.transforms();
  return ask.dispatch_modes() == 0 && ask.function_modes() == 0 && transforms.begin == transforms.end &&
         ask.tracing().value == nullptr && !ask.profiling();
}

bool TorchState::grad_enabled() const {
  return functions_ == nullptr ? says_yes(grad_enabled_) : functions_->grad_enabled();
}

}  // namespace msa_ops

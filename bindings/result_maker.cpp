#include "result_maker.hpp"

#include <dlfcn.h>
#include <pybind11/stl.h>

#include <initializer_list>
#include <string>
#include <utility>

namespace py = pybind11;

namespace msa_ops {
namespace {

// torch's numbers of devices.
constexpr std::int32_t kCpu = 0;
constexpr std::int32_t kCuda = 1;

// A tensor of C++, as torch's C functions name it.
using Handle = struct OpaqueTensor*;

void* find(const char* library, std::initializer_list<const char*> names) {
  void* opened = dlopen(library, RTLD_NOW | RTLD_NOLOAD);  // never closed: torch stays loaded
  if (opened == nullptr) return nullptr;
  for (const char* name : names) {
    if (void* found = dlsym(opened, name); found != nullptr) return found;
  }
  return nullptr;
}

template <typename Function>
bool load(Function& function, const char* library, std::initializer_list<const char*> names) {
  function = reinterpret_cast<Function>(find(library, names));
  return function != nullptr;
}

}  // namespace

// The first three are torch's C interface for compiled code, which is kept stable.
struct ResultMaker::Functions {
  int (*empty)(std::int64_t ndim, const std::int64_t* sizes, const std::int64_t* strides, std::int32_t dtype,
               std::int32_t device_type, std::int32_t device_index, Handle* made);
  int (*address)(Handle tensor, void** data);
  int (*drop)(Handle tensor);
  PyObject* (*wrap)(Handle tensor);  // takes the C++ object by address, whether by reference or by value

  static std::shared_ptr<const Functions> find_all() {
    static const std::shared_ptr<const Functions> found = [] {
      auto made = std::make_shared<Functions>();
      const char* cpu = "libtorch_cpu.so";
      const bool complete = load(made->empty, cpu, {"aoti_torch_empty_strided"}) &&
                            load(made->address, cpu, {"aoti_torch_get_data_ptr"}) &&
                            load(made->drop, cpu, {"aoti_torch_delete_tensor_object"}) &&
                            load(made->wrap, "libtorch_python.so",
                                 {"_Z16THPVariable_WrapRKN2at10TensorBaseE", "_Z16THPVariable_WrapN2at10TensorBaseE"});
      return complete ? std::shared_ptr<const Functions>(std::move(made)) : nullptr;
    }();
    return found;
  }
};

// Tensors that are dropped with it.
class ResultMaker::Handles {
 public:
  explicit Handles(const Functions& functions) : functions_(functions) {}
  ~Handles() {
    for (Handle each : all) functions_.drop(each);
  }
  Handles(const Handles&) = delete;
  Handles& operator=(const Handles&) = delete;
  std::vector<Handle> all;

 private:
  const Functions& functions_;
};

std::shared_ptr<ResultMaker> ResultMaker::of(const py::tuple& results) {
  auto made = std::make_shared<ResultMaker>();
  made->functions_ = Functions::find_all();
  if (made->functions_ == nullptr) return nullptr;
  for (const py::handle result : results) {
    const py::object device = result.attr("device");
    const auto type = device.attr("type").cast<std::string>();
    if (type != "cpu" && type != "cuda") return nullptr;
    const std::string dtype = py::str(result.attr("dtype"));  // torch.NAME
    const std::string name = "aoti_torch_dtype_" + dtype.substr(dtype.find('.') + 1);
    std::int32_t (*number)() = nullptr;
    if (!load(number, "libtorch_cpu.so", {name.c_str()})) return nullptr;
    made->results_.push_back({result.attr("shape").cast<std::vector<std::int64_t>>(),
                              result.attr("stride")().cast<std::vector<std::int64_t>>(), number(),
                              type == "cpu" ? kCpu : kCuda,
                              device.attr("index").is_none() ? 0 : device.attr("index").cast<std::int32_t>(),
                              result.attr("nbytes").cast<std::int64_t>()});
  }
  return made;
}

py::object ResultMaker::make(std::vector<SignatureReader::Span>& spans) const {
  const Functions& functions = *functions_;
  Handles handles(functions);
  handles.all.reserve(results_.size());
  {
    const py::gil_scoped_release released;  // the allocator may wait for the device
    for (const Result& one : results_) {
      Handle tensor = nullptr;
      if (functions.empty(static_cast<std::int64_t>(one.sizes.size()), one.sizes.data(), one.strides.data(), one.dtype,
                          one.device_type, one.device_index, &tensor) != 0) {
        break;
      }
      handles.all.push_back(tensor);
    }
  }
  if (handles.all.size() != results_.size()) return py::none();
  py::tuple made(results_.size());
  for (std::size_t i = 0; i < results_.size(); ++i) {
    void* data = nullptr;
    functions.address(handles.all[i], &data);
    PyObject* wrapped = functions.wrap(handles.all[i]);
    if (wrapped == nullptr) throw py::error_already_set();
    PyTuple_SET_ITEM(made.ptr(), i, wrapped);
    const auto begin = reinterpret_cast<std::uintptr_t>(data);
    spans.push_back({begin, begin + static_cast<std::uintptr_t>(results_[i].num_bytes), true});
  }
  return made;
}

}  // namespace msa_ops

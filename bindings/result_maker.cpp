#include "result_maker.hpp"

#include <dlfcn.h>
#include <pybind11/stl.h>

#include <initializer_list>
#include <new>
#include <string>
#include <type_traits>
#include <utility>

namespace py = pybind11;

namespace msa_ops {
namespace {

constexpr std::int8_t kCuda = 1;  // torch's number of the kind of device

// As torch lays out c10::ArrayRef and c10::Device.
struct Extents {
  const std::int64_t* data;
  std::size_t size;
};
struct Device {
  std::int8_t type;
  std::int8_t index;
};

template <typename Function>
bool load(Function& function, const char* library, std::initializer_list<const char*> names) {
  function = nullptr;
  void* opened = dlopen(library, RTLD_NOW | RTLD_NOLOAD);  // never closed: torch stays loaded
  for (const char* name : names) {
    if (opened != nullptr && function == nullptr) function = reinterpret_cast<Function>(dlsym(opened, name));
  }
  return function != nullptr;
}

}  // namespace

// at::detail makes a tensor without torch's dispatcher, which would ask for modes and more that a plain call has none of.
// Names of C++ say the types of the arguments: where torch changes them, the name is not found.
struct ResultMaker::Functions {
  // On the current device: leaves out what at::detail::empty_strided_cuda does before, whether torch uses CUDA at all and
  // two changes of the device. Null without CUDA.
  Tensor (*empty_generic)(Extents sizes, Extents strides, void* allocator, std::uint64_t keys, std::int8_t dtype);
  void* const* cuda_allocator;  // that in force stands there
  std::int8_t (*current_device)();
  std::uint64_t cuda_keys;  // torch's set of dispatch keys for a plain tensor of CUDA

  Tensor (*empty_cpu)(Extents sizes, Extents strides, std::int8_t dtype, bool pinned);
  Tensor (*empty_cuda)(Extents sizes, Extents strides, std::int8_t dtype, std::optional<Device> device);  // null without CUDA
  int (*address)(Tensor* tensor, void** data);
  int (*drop)(Tensor* tensor);          // one that `new` made
  PyObject* (*wrap)(Tensor* tensor);  // takes the object over, whether it is named by reference or by value

  static const Functions* find_all() {
    static const std::unique_ptr<const Functions> found = [] {
      auto made = std::make_unique<Functions>();
      const char* cpu = "libtorch_cpu.so";
      load(made->empty_cuda, "libtorch_cuda.so",
           {"_ZN2at6detail18empty_strided_cudaEN3c108ArrayRefIlEES3_NS1_10ScalarTypeESt8optionalINS1_6DeviceEE"});
      if (load(made->current_device, "libc10_cuda.so", {"_ZN3c104cuda14current_deviceEv"}) &&
          load(made->cuda_allocator, "libc10_cuda.so", {"_ZN3c104cuda20CUDACachingAllocator9allocatorE"}) &&
          load(made->empty_generic, cpu,
               {"_ZN2at6detail21empty_strided_genericEN3c108ArrayRefIlEES3_PNS1_9AllocatorENS1_14DispatchKeySetENS1_10Scal"
                "arTypeE"})) {
        try {
          const py::module_ torch = py::module_::import("torch._C");
          const py::object keys = torch.attr("DispatchKeySet")(torch.attr("DispatchKey").attr("CUDA"));
          made->cuda_keys = keys.attr("raw_repr")().cast<std::uint64_t>();
        } catch (const py::error_already_set&) {  // a torch that names its keys otherwise
          made->empty_generic = nullptr;
        }
      } else {
        made->empty_generic = nullptr;
      }
      const bool complete =
          load(made->empty_cpu, cpu, {"_ZN2at6detail17empty_strided_cpuEN3c108ArrayRefIlEES3_NS1_10ScalarTypeEb"}) &&
          load(made->address, cpu, {"aoti_torch_get_data_ptr"}) &&
          load(made->drop, cpu, {"aoti_torch_delete_tensor_object"}) &&
          load(made->wrap, "libtorch_python.so",
               {"_Z16THPVariable_WrapON2at10TensorBaseE", "_Z16THPVariable_WrapN2at10TensorBaseE"});
      return complete ? std::unique_ptr<const Functions>(std::move(made)) : nullptr;
    }();
    return found.get();
  }
};

ResultMaker::Made::~Made() {
  for (std::size_t i = wrapped_; i < size_; ++i) functions_->drop(new Tensor{tensors_[i].implementation});
}

std::shared_ptr<ResultMaker> ResultMaker::of(const py::tuple& results) {
  static_assert(!std::is_trivially_copyable_v<Tensor> && std::is_trivially_copyable_v<std::optional<Device>>);
  auto made = std::make_shared<ResultMaker>();
  made->functions_ = Functions::find_all();
  if (made->functions_ == nullptr || results.size() > kMost) return nullptr;
  for (const py::handle result : results) {
    const py::object device = result.attr("device");
    const auto type = device.attr("type").cast<std::string>();
    if (type != "cpu" && (type != "cuda" || made->functions_->empty_cuda == nullptr)) return nullptr;
    const std::string dtype = py::str(result.attr("dtype"));  // torch.NAME
    const std::string name = "aoti_torch_dtype_" + dtype.substr(dtype.find('.') + 1);
    std::int32_t (*number)() = nullptr;
    if (!load(number, "libtorch_cpu.so", {name.c_str()})) return nullptr;
    Result one{result.attr("shape").cast<std::vector<std::int64_t>>(),
               result.attr("stride")().cast<std::vector<std::int64_t>>(), static_cast<std::int8_t>(number()),
               std::nullopt, result.attr("nbytes").cast<std::int64_t>()};
    if (type == "cuda") one.cuda_device = device.attr("index").cast<std::int8_t>();
    made->results_.push_back(std::move(one));
  }
  return made;
}

bool ResultMaker::make(Made& made, std::vector<SignatureReader::Span>& spans) const {
  made.functions_ = functions_;
  for (const Result& one : results_) {
    Tensor& tensor = made.tensors_[made.size_];
    const Extents sizes{one.sizes.data(), one.sizes.size()};
    const Extents strides{one.strides.data(), one.strides.size()};
    try {
      const bool on_current =
          one.cuda_device.has_value() && functions_->empty_generic != nullptr && *one.cuda_device == functions_->current_device();
      if (on_current) {
        new (&tensor) Tensor(functions_->empty_generic(sizes, strides, *functions_->cuda_allocator, functions_->cuda_keys,
                                                       one.dtype));
      } else if (one.cuda_device.has_value()) {
        new (&tensor) Tensor(functions_->empty_cuda(sizes, strides, one.dtype, Device{kCuda, *one.cuda_device}));
      } else {
        new (&tensor) Tensor(functions_->empty_cpu(sizes, strides, one.dtype, false));
      }
    } catch (const std::exception&) {  // the long way tells what it is
      return false;
    }
    ++made.size_;
    void* data = nullptr;
    functions_->address(&tensor, &data);
    const auto begin = reinterpret_cast<std::uintptr_t>(data);
    spans.push_back({begin, begin + static_cast<std::uintptr_t>(one.num_bytes), true});
  }
  return true;
}

py::object ResultMaker::wrap(Made& made) const {
  const auto next = [&made, this] {
    PyObject* wrapped = functions_->wrap(&made.tensors_[made.wrapped_++]);
    if (wrapped == nullptr) throw py::error_already_set();
    return wrapped;
  };
  if (made.size_ == 1) return py::reinterpret_steal<py::object>(next());
  py::tuple all(made.size_);
  for (std::size_t i = 0; i < made.size_; ++i) PyTuple_SET_ITEM(all.ptr(), static_cast<Py_ssize_t>(i), next());
  return all;
}

}  // namespace msa_ops

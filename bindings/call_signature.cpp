#include "call_signature.hpp"

#include <cstring>
#include <stdexcept>
#include <string>

namespace py = pybind11;

namespace msa_ops {
namespace {

constexpr int kCpu = 1;
constexpr int kCuda = 2;
constexpr int kRocm = 10;

// Codes of dtypes.
constexpr int kUnsigned = 1;
constexpr int kFloat = 2;  // bf16 and narrower formats have codes of their own

template <typename Value>
void add(std::string& bytes, const Value& value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// A kind and a value.
template <typename Value>
void add(std::string& bytes, char kind, const Value& value) {
  char both[1 + sizeof(value)];
  both[0] = kind;
  std::memcpy(both + 1, &value, sizeof(value));
  bytes.append(both, sizeof(both));
}

SignatureReader::Span span_of(const dlpack::Tensor& tensor) {
  const auto begin = reinterpret_cast<std::uintptr_t>(tensor.data);
  std::int64_t last = 0;
  bool empty = false;
  for (int i = 0; i < tensor.ndim; ++i) {
    last += (tensor.shape[i] - 1) * tensor.strides[i];
    empty = empty || tensor.shape[i] == 0;
  }
  const std::uintptr_t size = tensor.dtype.bits * tensor.dtype.lanes / 8;
  return {begin, empty ? begin : begin + (last + 1) * size, false};
}

}  // namespace

SignatureReader::SignatureReader(py::object tensor_type, py::object parameter_type)
    : tensor_type_(std::move(tensor_type)), parameter_type_(std::move(parameter_type)) {
  if (!py::hasattr(tensor_type_, "__dlpack_c_exchange_api__")) {
    throw std::invalid_argument("tensor_type: offers no __dlpack_c_exchange_api__; torch 2.10 and newer do");
  }
  const py::object capsule = tensor_type_.attr("__dlpack_c_exchange_api__");
  auto* api = static_cast<dlpack::ExchangeApi*>(PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
  if (api == nullptr) throw py::error_already_set();
  while (api != nullptr && api->major != dlpack::kMajorVersion) api = api->previous;
  if (api == nullptr || api->tensor_from_object == nullptr) {
    throw std::invalid_argument("tensor_type: its exchange functions are not of DLPack 1");
  }
  api_ = api;
  is_neg_ = tensor_type_.attr("is_neg");
}

py::object SignatureReader::read(py::handle record, const py::tuple& names, const py::tuple& written, py::handle outs,
                                 std::int64_t alignment, bool grad_enabled) const {
  std::string bytes;
  bytes.reserve(640);
  std::vector<Span> spans;
  spans.reserve(24);
  for (const py::handle name : names) {
    const py::object value = py::reinterpret_steal<py::object>(PyObject_GetAttr(record.ptr(), name.ptr()));
    if (!value) throw py::error_already_set();
    const std::size_t before = spans.size();
    if (!append(value, alignment, grad_enabled, bytes, spans)) return py::none();
    if (spans.size() > before) {
      for (const py::handle other : written) spans[before].written |= other.ptr() == name.ptr();
    }
  }
  if (!outs.is_none()) {
    bytes.push_back('o');
    for (const py::handle out : py::reinterpret_borrow<py::tuple>(outs)) {
      const std::size_t before = spans.size();
      if (!append(out, alignment, grad_enabled, bytes, spans)) return py::none();
      if (spans.size() > before) spans[before].written = true;
    }
  }
  append_overlaps(spans, bytes);
  return py::bytes(bytes);
}

void SignatureReader::append_overlaps(const std::vector<Span>& spans, std::string& bytes) {
  for (std::size_t i = 0; i < spans.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if ((spans[i].written || spans[j].written) && spans[i].begin < spans[j].end && spans[j].begin < spans[i].end) {
        bytes.push_back('x');
        add(bytes, i);
        add(bytes, j);
        add(bytes, spans[i].begin - spans[j].begin);
      }
    }
  }
}

bool SignatureReader::is_tensor(py::handle value) const {
  const auto* type = reinterpret_cast<PyObject*>(Py_TYPE(value.ptr()));
  return type == tensor_type_.ptr() || type == parameter_type_.ptr();
}

std::uintptr_t SignatureReader::current_stream(int device) const {
  void* stream = nullptr;
  if (api_->current_stream(kCuda, device, &stream) != 0) throw py::error_already_set();
  return reinterpret_cast<std::uintptr_t>(stream);
}

SignatureReader::Scratch SignatureReader::allocate(int device, std::int64_t num_bytes) const {
  dlpack::Tensor prototype{};
  prototype.device = {kCuda, device};
  prototype.ndim = 1;
  prototype.dtype = {kUnsigned, 8, 1};
  prototype.shape = &num_bytes;
  dlpack::ManagedTensor* made = nullptr;
  const auto ignore = [](void*, const char*, const char*) {};
  if (api_->allocate(&prototype, &made, nullptr, ignore) != 0) {
    PyErr_Clear();
    return nullptr;
  }
  return Scratch(made);
}

bool SignatureReader::append_span(py::handle made, std::vector<Span>& spans) const {
  dlpack::Tensor tensor{};
  if (api_->tensor_from_object(made.ptr(), &tensor) != 0) {
    PyErr_Clear();
    return false;
  }
  spans.push_back(span_of(tensor));
  return true;
}

// Every value starts with a letter for its kind and says its own length, so that no two calls share their bytes.
bool SignatureReader::append(py::handle value, std::int64_t alignment, bool grad_enabled, std::string& bytes,
                             std::vector<Span>& spans) const {
  PyObject* object = value.ptr();
  if (is_tensor(value)) {
    if (grad_enabled) {
      const py::object flag = py::reinterpret_steal<py::object>(PyObject_GetAttr(object, requires_grad_.ptr()));
      if (!flag) throw py::error_already_set();
      if (flag.ptr() == Py_True) return false;
    }
    dlpack::Tensor tensor{};
    if (api_->tensor_from_object(object, &tensor) != 0) {
      PyErr_Clear();  // a tensor that DLPack cannot describe goes the long way
      return false;
    }
    // A negated view shows other values than its memory holds; DLPack passes over that. torch makes them of imaginary
    // parts, which are fp16, fp32 or fp64.
    if (tensor.dtype.code == kFloat && !known_->holds(object, tensor.data)) {
      const py::object negated = py::reinterpret_steal<py::object>(PyObject_CallOneArg(is_neg_.ptr(), object));
      if (!negated) throw py::error_already_set();
      if (negated.ptr() == Py_True) return false;
      known_->add(object, tensor.data);
    }
    const int device = tensor.device.type;
    if (device != kCpu && device != kCuda && device != kRocm) return false;
    const Span span = span_of(tensor);
    struct {
      char kind;
      char offset;
      std::uint16_t lanes;
      std::uint8_t code;
      std::uint8_t bits;
      std::uint16_t ndim;
      std::int32_t device_type;
      std::int32_t device_id;
    } const head{'t',
                 static_cast<char>(span.begin % alignment),
                 tensor.dtype.lanes,
                 tensor.dtype.code,
                 tensor.dtype.bits,
                 static_cast<std::uint16_t>(tensor.ndim),
                 tensor.device.type,
                 tensor.device.id};
    static_assert(sizeof(head) == 16);
    const std::size_t extents = tensor.ndim * sizeof(std::int64_t);
    const std::size_t before = bytes.size();
    bytes.resize(before + sizeof(head) + 2 * extents);
    char* at = &bytes[before];
    std::memcpy(at, &head, sizeof(head));
    if (extents > 0) {
      std::memcpy(at + sizeof(head), tensor.shape, extents);
      std::memcpy(at + sizeof(head) + extents, tensor.strides, extents);
    }
    spans.push_back(span);
    return true;
  }
  if (object == Py_None) {
    bytes.push_back('n');
  } else if (PyBool_Check(object)) {
    bytes.push_back(object == Py_True ? 'y' : 'f');
  } else if (PyLong_CheckExact(object)) {
    int overflow = 0;
    const long long number = PyLong_AsLongLongAndOverflow(object, &overflow);
    if (overflow == 0) {
      add(bytes, 'i', number);
    } else {
      bytes.push_back('b');
      bytes.append(py::str(value).cast<std::string>());
      bytes.push_back('b');
    }
  } else if (PyFloat_CheckExact(object)) {
    add(bytes, 'd', PyFloat_AS_DOUBLE(object));
  } else if (PyUnicode_CheckExact(object)) {
    Py_ssize_t size = 0;
    const char* text = PyUnicode_AsUTF8AndSize(object, &size);
    if (text == nullptr) throw py::error_already_set();
    add(bytes, 's', size);
    bytes.append(text, size);
  } else {
    // torch.dtype and the like: one object a value for the life of the process.
    if (std::strcmp(Py_TYPE(object)->tp_name, "torch.dtype") != 0) return false;
    add(bytes, 'p', object);
  }
  return true;
}

}  // namespace msa_ops

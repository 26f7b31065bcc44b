// The metadata of a call as one string of bytes, so that a decode loop finds the plan of a call with one look-up.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "dlpack.hpp"
#include "known_tensors.hpp"

namespace msa_ops {

// Reads tensors of one Python type through the exchange functions of its framework.
class SignatureReader {
 public:
  // `tensor_type`: torch.Tensor; `parameter_type`: its one subclass that behaves alike. Throws std::invalid_argument if
  // the type offers no exchange functions of a version known here.
  SignatureReader(pybind11::object tensor_type, pybind11::object parameter_type);

  // Shapes, strides, dtypes, devices and the addresses modulo `alignment` of the tensors among the values of `names` in
  // `record` and in `outs` (a tuple or None), and the plain values between them. Where one of `outs`, or of the values
  // that `written` names, shares memory with another tensor, the distance of the two is part of it. None if something
  // among them is not of these types, or needs gradients while `grad_enabled`: such a call is not for the short way.
  pybind11::object read(pybind11::handle record, const pybind11::tuple& names, const pybind11::tuple& written,
                        pybind11::handle outs, std::int64_t alignment, bool grad_enabled) const;

  struct Span {  // bytes that a tensor may touch, and whether the op writes them
    std::uintptr_t begin;
    std::uintptr_t end;
    bool written;
  };
  // The pieces of `read`: one value, with its span if it is a tensor; false if it is not for the short way.
  bool append(pybind11::handle value, std::int64_t alignment, bool grad_enabled, std::string& bytes,
              std::vector<Span>& spans) const;
  // The span of a tensor that a call makes; false if DLPack cannot describe it.
  bool append_span(pybind11::handle made, std::vector<Span>& spans) const;
  // Where spans that are written meet others.
  static void append_overlaps(const std::vector<Span>& spans, std::string& bytes);
  bool is_tensor(pybind11::handle value) const;
  // The stream that the framework uses on a device of CUDA.
  std::uintptr_t current_stream(int device) const;

  struct Release {
    void operator()(dlpack::ManagedTensor* tensor) const {
      if (tensor->deleter != nullptr) tensor->deleter(tensor);
    }
  };
  using Scratch = std::unique_ptr<dlpack::ManagedTensor, Release>;
  // Bytes on a device of CUDA from the framework's allocator, for work on its current stream. They may be released as
  // soon as that work is launched, as a tensor may be dropped. Null if there is no memory.
  Scratch allocate(int device, std::int64_t num_bytes) const;

 private:
  pybind11::object tensor_type_;
  pybind11::object parameter_type_;
  pybind11::str requires_grad_{"requires_grad"};
  pybind11::object is_neg_;  // method of the tensor type
  const dlpack::ExchangeApi* api_ = nullptr;
  std::unique_ptr<KnownTensors> known_ = std::make_unique<KnownTensors>();
};

}  // namespace msa_ops

// Makes a call's results from C++, by functions that torch's libraries export: through Python it costs more than the launch.
#pragma once

#include <pybind11/pybind11.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "call_signature.hpp"

namespace msa_ops {

class ResultMaker {
  struct Functions;
  // A tensor of C++: the pointer that at::TensorBase is. Not trivial, so that it is returned as one.
  struct Tensor {
    void* implementation = nullptr;
    ~Tensor() {}
  };

 public:
  static constexpr std::size_t kMost = 8;

  // Makes tensors like these. Null if torch lacks the functions, or if the tensors are more than kMost, or not plain ones of
  // a CPU or CUDA device.
  static std::shared_ptr<ResultMaker> of(const pybind11::tuple& results);

  // The results of one call, dropped with it unless Python has them.
  class Made {
   public:
    Made() = default;
    ~Made();
    Made(const Made&) = delete;
    Made& operator=(const Made&) = delete;

   private:
    friend class ResultMaker;
    const Functions* functions_ = nullptr;
    std::array<Tensor, kMost> tensors_;
    std::size_t wrapped_ = 0;  // Python has those before
    std::size_t size_ = 0;
  };

  // Makes the results, their spans behind those that are in `spans`; false if there is no memory. Needs no interpreter, and
  // should not hold it: the allocator may wait for the device.
  bool make(Made& made, std::vector<SignatureReader::Span>& spans) const;

  // The results as Python's tensors: the one, or a tuple of several.
  pybind11::object wrap(Made& made) const;

 private:
  struct Result {
    std::vector<std::int64_t> sizes;
    std::vector<std::int64_t> strides;
    std::int8_t dtype;
    std::optional<std::int8_t> cuda_device;  // else of the CPU
    std::int64_t num_bytes;
  };
  const Functions* functions_ = nullptr;
  std::vector<Result> results_;
};

}  // namespace msa_ops

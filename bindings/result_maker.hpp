// Makes a call's results from C++, by functions that torch's libraries export: through Python it costs more than the launch.
#pragma once

#include <pybind11/pybind11.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "call_signature.hpp"

namespace msa_ops {

class ResultMaker {
 public:
  // Makes tensors like these. Null if torch lacks the functions, or if the tensors are not plain ones of a CPU or CUDA device.
  static std::shared_ptr<ResultMaker> of(const pybind11::tuple& results);

  // Tensors in a tuple, and their spans behind those that are in `spans`. None, with nothing appended, if there is no memory.
  pybind11::object make(std::vector<SignatureReader::Span>& spans) const;

 private:
  struct Functions;
  struct Result {
    std::vector<std::int64_t> sizes;
    std::vector<std::int64_t> strides;
    std::int32_t dtype;
    std::int32_t device_type;
    std::int32_t device_index;
    std::int64_t num_bytes;
  };
  class Handles;
  std::shared_ptr<const Functions> functions_;
  std::vector<Result> results_;
};

}  // namespace msa_ops

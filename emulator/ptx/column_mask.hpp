// The 64-bit descriptor of tcgen05.mma.ws that lets columns of B count as zeros, and shifts all of them.
#pragma once

#include <cstdint>

#include "tcgen05_descriptor.hpp"

namespace msa_ops::emulator::ptx {

class ColumnMask {
 public:
  ColumnMask() = default;  // all columns as they are
  // Violation for reserved bits, and for a shift beyond what M and the instruction descriptor allow.
  ColumnMask(std::uint64_t descriptor, const TensorProduct& product);

  unsigned shift() const { return descriptor_ >> 56 & 63; }  // column c of the product is column c + shift of B
  bool any() const { return (descriptor_ >> 39 & 1) != 0; }
  bool is_zero(unsigned column) const;

 private:
  std::uint64_t descriptor_ = 0;
  unsigned part_ = 1;  // columns that one of up to four start counts and first spans is for
};

}  // namespace msa_ops::emulator::ptx

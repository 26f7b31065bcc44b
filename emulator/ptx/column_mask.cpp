#include "column_mask.hpp"

#include <algorithm>
#include <string>

#include "../device/fault.hpp"

namespace msa_ops::emulator::ptx {

ColumnMask::ColumnMask(std::uint64_t descriptor, const TensorProduct& product)
    : descriptor_(descriptor), part_(product.n / (128 / product.m)) {
  const auto refuse = [](const std::string& what) {
    throw Violation{FaultKind::kDescriptor, "the zero-column mask descriptor has " + what};
  };
  if ((descriptor & 0xc000'0070'0000'0000U) != 0) refuse("reserved bits");
  const unsigned most = std::min(product.most_shift, product.m == 32 ? 16U : 32U);
  if (shift() > most) {
    refuse("a shift of " + std::to_string(shift()) + "; M " + std::to_string(product.m) +
           " and the instruction descriptor allow " + std::to_string(most));
  }
}

// Spans of columns that are used and of zeros take turns. The first one is shorter by the start count, but for one
// column. By PTX's examples the field called skip span is the length of the zeros, less one, and use span the other:
// Table 45 of PTX 9.0 has them the other way round, a model that was compared with a B200 has them like the examples.
bool ColumnMask::is_zero(unsigned column) const {
  if (!any()) return false;
  const unsigned part = column / part_;
  const auto zeros = static_cast<unsigned>(descriptor_ >> 40 & 255) + 1, used = static_cast<unsigned>(descriptor_ >> 48 & 255) + 1;
  const bool zeros_first = (descriptor_ >> (32 + part) & 1) != 0;
  const unsigned start = std::min(static_cast<unsigned>(descriptor_ >> (8 * part) & 255), (zeros_first ? zeros : used) - 1);
  const unsigned at = (column % part_ + start) % (zeros + used);
  return zeros_first ? at < zeros : at >= used;
}

}  // namespace msa_ops::emulator::ptx

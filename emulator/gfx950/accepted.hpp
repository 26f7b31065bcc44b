// Faults that a user knows of and wants to be passed over, so that everything behind them is looked at too.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "../device/fault.hpp"

namespace msa_ops::emulator::gfx950 {

class AcceptedFaults {
 public:
  // Of one kind, at instructions from `first` to `last`, which are offsets in the text.
  struct Range {
    FaultKind kind;
    std::uint32_t first, last;
  };
  AcceptedFaults() = default;
  explicit AcceptedFaults(std::vector<Range> ranges) : ranges_(std::move(ranges)) {}

  bool has(FaultKind kind, std::uint32_t address) const {
    for (const Range& range : ranges_) {
      if (range.kind == kind && range.first <= address && address <= range.last) return true;
    }
    return false;
  }

 private:
  std::vector<Range> ranges_;
};

}  // namespace msa_ops::emulator::gfx950

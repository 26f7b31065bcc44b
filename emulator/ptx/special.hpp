// Special registers: a row of 32 values each, in Operand::Space::kSpecial.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace msa_ops::emulator::ptx {

// The order of the table in special.cpp. Where a name ends in X, those of Y and Z follow.
enum class Special : unsigned {
  kThreadX, kThreadY, kThreadZ, kBlockSizeX, kBlockSizeY, kBlockSizeZ, kBlockX, kBlockY, kBlockZ, kGridX, kGridY,
  kGridZ, kClusterX, kClusterY, kClusterZ, kClustersX, kClustersY, kClustersZ, kBlockInClusterX, kBlockInClusterY,
  kBlockInClusterZ, kClusterSizeX, kClusterSizeY, kClusterSizeZ, kRankInCluster, kBlocksOfCluster, kExplicitCluster,
  kLane, kWarp, kWarps, kMaskEqual, kMaskLess, kMaskLessEqual, kMaskGreater, kMaskGreaterEqual, kMultiprocessor,
  kMultiprocessors, kLaunch, kDynamicShared, kTotalShared, kAggregateShared, kReservedSharedBegin, kReservedSharedEnd,
  kReservedSharedCap, kClock, kClockHigh, kClock64, kTimer, kTimerLow, kTimerHigh,
};

struct SpecialRegister {
  std::string name;
  unsigned width;  // bytes; kPredicateWidth for predicates
};

const std::vector<SpecialRegister>& special_registers();
std::uint32_t offset_of(Special which);
std::uint32_t special_bytes();  // of all rows

// What a name stands for.
struct SpecialValue {
  Special which{};
  bool is_zero = false;  // fourth components; parameters and counters that nobody sets
  unsigned width = 0;
  unsigned least_width = 0;  // mov takes the lowest bits too, down to so many bytes
};
// %tid.x, %tid.r, %envreg3, %pm0_64; nothing for a name that is none, or that stands for a vector.
std::optional<SpecialValue> find_special(const std::string& name);
bool is_special_vector(const std::string& name);  // %tid

inline bool counts_time(Special which) { return which >= Special::kClock; }

}  // namespace msa_ops::emulator::ptx

// Special registers: a row of 32 values each, in Operand::Space::kSpecial.
#pragma once

#include <cstdint>
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
inline bool counts_time(Special which) { return which >= Special::kClock; }

}  // namespace msa_ops::emulator::ptx

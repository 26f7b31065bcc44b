// Reads that count when a store uses what came of them (dropped_reads.hpp).
#include <algorithm>

#include "warp.hpp"

namespace msa_ops::emulator::ptx {

void PtxWarp::read_late(std::uint64_t address, std::size_t bytes, int lane) {
  constexpr std::size_t kMost = 4096;  // lanes that never store: beyond this their reads count too
  if (late_reads_.size() >= kMost) end_late_reads(kAllLanes);
  late_reads_.push_back({address, bytes, at_, lane});
}

void PtxWarp::end_late_reads(Mask lanes, const std::vector<std::uint32_t>* reads) {
  const auto counts = [&](const LateRead& read) {
    const bool is_one = reads == nullptr || std::find(reads->begin(), reads->end(), read.pc) != reads->end();
    return is_one && (lanes >> read.lane & 1) != 0;
  };
  for (const LateRead& read : late_reads_) {
    if (!counts(read)) continue;
    try {
      block_.cluster().watch().use(read.address, read.bytes, false, {}, read.lane);
    } catch (Violation& violation) {
      if (violation.pc < 0) violation.pc = read.pc;
      throw;
    }
  }
  late_reads_.erase(std::remove_if(late_reads_.begin(), late_reads_.end(), counts), late_reads_.end());
}

void PtxWarp::drop_late_reads(Mask lanes) {
  const auto is_dropped = [&](const LateRead& read) { return (lanes >> read.lane & 1) != 0; };
  late_reads_.erase(std::remove_if(late_reads_.begin(), late_reads_.end(), is_dropped), late_reads_.end());
}

}  // namespace msa_ops::emulator::ptx

// What a wave has done, in numbers.
#include <algorithm>
#include <cstdint>

#include "forms.hpp"
#include "wave.hpp"

namespace msa_ops::emulator::gfx950 {
namespace {

constexpr std::uint64_t kSector = 32;  // bytes

}  // namespace

void Wave::count_sectors(std::uint64_t address, unsigned bytes) {
  for (std::uint64_t sector = address / kSector; sector <= (address + bytes - 1) / kSector; ++sector) {
    if (!sectors_.empty()) {
      if (sector == sectors_.back()) continue;
      if (sector <= last_sector_ && std::find(sectors_.rbegin(), sectors_.rend(), sector) != sectors_.rend()) continue;
    }
    sectors_.push_back(sector);
    last_sector_ = std::max(last_sector_, sector);
  }
}

void Wave::end_request() {
  if (sectors_.empty()) return;
  ++global_requests_;
  global_sectors_ += sectors_.size();
  sectors_.clear();
  last_sector_ = 0;
}

void Wave::add_to(Counters& counters) const {
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    if (counts_[i] == 0) continue;
    total += counts_[i];
    const Form& form = *kernel_.instructions()[i].form;
    counters.warp_instructions[form.name] += counts_[i];
    if (const MatrixWork work = matrix_work(form); work.flops > 0)
      counters.matrix_flops[work.kind] += counts_[i] * work.flops;
  }
  counters.shared_passes += lds_cycles;
  counters.shared_passes_at_least += lds_cycles - lds_conflict_cycles;
  counters.out_of_range_lanes += out_of_range_lanes;
  counters.global_bytes_read += global_read_;
  counters.global_bytes_written += global_written_;
  counters.global_requests += global_requests_;
  counters.global_sectors += global_sectors_;
  counters.waits += barrier_waits_;
  counters.waits_for["barrier"] += barrier_waits_;
  counters.waits_for["vmcnt"] += vector_waits_;
  counters.waits_for["lgkmcnt"] += lds_waits_;
  counters.waits_of_warp[index_] += barrier_waits_;
  counters.instructions_of_warp[index_] += total;
  const char* const names[] = {"shared", "local"};
  for (std::size_t space = 0; space < space_bytes_.size(); ++space) {
    const auto& [read, written] = space_bytes_[space];
    if (read + written == 0) continue;
    auto& all = counters.bytes_by_space[names[space]];
    all[0] += read;
    all[1] += written;
  }
}

}  // namespace msa_ops::emulator::gfx950

// What a warp counts: instructions, requests to memory and their sectors, conflicts of banks.
#include <algorithm>
#include <iterator>

#include "warp.hpp"

namespace msa_ops::emulator::ptx {

void PtxWarp::add_to(Counters& counters) const {
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    if (counts_[i] > 0) counters.warp_instructions[kernel_.instructions()[i].form->opcode] += counts_[i];
  }
  for (std::size_t kind = 0; kind < flops_.size(); ++kind) {
    if (flops_[kind] > 0) counters.matrix_flops[matrix::name_of(static_cast<matrix::Kind>(kind))] += flops_[kind];
  }
  counters.global_bytes_read += global_read_;
  counters.global_bytes_written += global_written_;
  counters.global_requests += global_requests_;
  counters.global_sectors += global_sectors_;
  counters.shared_passes += shared_passes_;
  counters.shared_passes_at_least += shared_passes_at_least_;
  counters.waits += waits_;
  std::uint64_t total = 0;
  for (const std::uint64_t count : counts_) total += count;
  counters.instructions_of_warp[index_] += total;
  counters.waits_of_warp[index_] += waits_;
  constexpr const char* kNames[]{"shared", "cluster", "local", "tensor"};
  for (std::size_t space = 0; space < std::size(kNames); ++space) {
    const std::uint64_t read = space_bytes_[2 * space], written = space_bytes_[2 * space + 1];
    if (read + written == 0) continue;
    auto& all = counters.bytes_by_space[kNames[space]];
    all[0] += read;
    all[1] += written;
  }
}

void PtxWarp::count_global_request(const std::uint64_t* addresses, Mask lanes) {
  std::uint64_t sectors[kLanes];
  unsigned count = 0;
  for (; lanes != 0; lanes &= lanes - 1) {
    const std::uint64_t sector = addresses[__builtin_ctz(lanes)] / 32;
    unsigned i = count;
    while (i > 0 && sectors[i - 1] != sector) --i;  // neighbours share one, so the last is the likeliest
    if (i == 0) sectors[count++] = sector;
  }
  ++global_requests_;
  global_sectors_ += count;
}

// Words of 4 bytes lie in the banks in turn. Lanes that want the same word share it; 8 bytes a lane are served by halves
// of the warp, 16 by quarters.
void PtxWarp::count_shared_request(const std::uint64_t* addresses, std::size_t bytes, Mask lanes) {
  constexpr unsigned kBanks = 32;
  const unsigned words = bytes <= 4 ? 1 : static_cast<unsigned>(bytes / 4), group = kLanes / words;
  for (unsigned first = 0; first < kLanes; first += group) {
    const Mask some = lanes & ((group == kLanes ? kAllLanes : (Mask{1} << group) - 1) << first);
    if (some == 0) continue;
    std::uint64_t wanted[kBanks][8];
    std::uint8_t different[kBanks] = {};
    unsigned most = 1;
    for (Mask rest = some; rest != 0; rest &= rest - 1) {
      const std::uint64_t start = addresses[__builtin_ctz(rest)] / 4;
      for (std::uint64_t word = start; word < start + words; ++word) {
        auto& count = different[word % kBanks];
        auto& known = wanted[word % kBanks];
        const unsigned kept = count < 8 ? count : 8;
        bool found = false;
        for (unsigned i = 0; i < kept; ++i) found = found || known[i] == word;
        if (found) continue;
        if (count < 8) known[count] = word;
        if (++count > most) most = count;
      }
    }
    shared_passes_ += most;
    ++shared_passes_at_least_;
  }
}

}  // namespace msa_ops::emulator::ptx

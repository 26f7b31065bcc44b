// st.bulk: zeros into the block's own shared memory.
#include <cstring>
#include <string>

#include "addresses.hpp"
#include "lanes.hpp"
#include "opcodes.hpp"

namespace msa_ops::emulator::ptx {
namespace {

constexpr std::size_t kStep = 8;               // bytes; of the address and the size
constexpr std::uint64_t kMost = 16'777'216;    // bytes, by the PTX manual

// [shared], bytes, 0
void store_bulk(PtxWarp& warp, const Instruction& i, Mask lanes) {
  bool changed = false;
  for_lanes(lanes, [&](unsigned lane) {
    const int who = static_cast<int>(lane);
    std::uint64_t address = address_of(warp, i.operands[0], lane, i.offset, i.form->memory);
    const std::uint64_t bytes = warp.value(i.operands[1], lane);
    if (i.form->memory == MemorySpace::kGeneric && space_of(address) != MemorySpace::kCluster) {
      throw Violation{FaultKind::kOutOfBounds, "not an address of shared memory", who, address};
    }
    if (bytes % kStep != 0 || bytes > kMost) {
      throw Violation{FaultKind::kOutOfBounds,
                      std::to_string(bytes) + " bytes; accepted: multiples of 8 up to " + std::to_string(kMost), who, address};
    }
    SharedMemory& shared = shared_place(warp, address, MemorySpace::kShared, lane).block->shared();
    for (std::uint64_t at = 0; at < bytes; at += kStep) {
      std::byte* const place = shared.write(address + at, kStep, who);
      std::uint64_t old = 0;
      std::memcpy(&old, place, kStep);
      if (old == 0) continue;
      std::memset(place, 0, kStep);
      changed = true;
    }
    warp.count_bytes(warp.block(), true, bytes);
  });
  if (changed) warp.note_change();
}

}  // namespace

void add_store_bulk_forms(Forms& forms) {
  forms.push_back({"st.bulk.shared", "A w4 4", store_bulk, MemorySpace::kShared});
  forms.push_back({"st.bulk", "A w4 4", store_bulk, MemorySpace::kGeneric});
}

}  // namespace msa_ops::emulator::ptx

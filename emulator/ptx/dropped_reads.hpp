// Reads of global memory whose value some lanes drop.
#pragma once

#include <cstdint>
#include <vector>

#include "instruction.hpp"

namespace msa_ops::emulator::ptx {

// Compilers let every warp of a block read what only some lanes store (Triton: a tile that is smaller than the block, and
// scalars). The others' reads race with that store, but in PTX such a race only leaves open which of the two values is
// read, and theirs goes nowhere. So a plain read whose value reaches nothing but guarded plain stores, with nothing that
// orders in between, counts when such a store is executed, for the lanes that execute it: Instruction::late, late_reads.
// For these lanes it makes no difference. Where the next order begins, what is left has been dropped: drops_late.
void find_dropped_reads(std::vector<Instruction>& all, std::uint32_t start, std::uint32_t past);

}  // namespace msa_ops::emulator::ptx

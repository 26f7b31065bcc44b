// Reads of the LDS that ask again and again for what another wave will store.
#pragma once

#include <vector>

#include "instruction.hpp"

namespace msa_ops::emulator::gfx950 {

// Marks them (Instruction::polls). Machine code does not say which reads are atomic or volatile, so what counts is that a
// short loop without any other work on memory, matrix instruction or barrier compares what it reads from an address that
// it does not change, or the same read in front of such a loop, which compilers put there.
void mark_polling_reads(std::vector<Instruction>& instructions);

}  // namespace msa_ops::emulator::gfx950

// Where lanes that part at a branch meet again.
#pragma once

#include <vector>

#include "instruction.hpp"

namespace msa_ops::emulator::ptx {

// Sets Instruction::reconvergence of every branch to the first instruction that all ways from it to the end pass
// (its immediate post-dominator), or to the number of instructions if there is none.
void find_reconvergence(std::vector<Instruction>& instructions);

}  // namespace msa_ops::emulator::ptx

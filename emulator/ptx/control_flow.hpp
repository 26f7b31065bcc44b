// Where lanes that part at a branch meet again.
#pragma once

#include <vector>

#include "instruction.hpp"

namespace msa_ops::emulator::ptx {

// Sets Instruction::reconvergence of every branch to the first instruction that all ways from it pass (its immediate
// post-dominator), or to the number of instructions if there is none. Ways that end early do not count, since lanes
// that have ended hold up nobody; neither is it worth meeting only to end together.
void find_reconvergence(std::vector<Instruction>& instructions);

}  // namespace msa_ops::emulator::ptx

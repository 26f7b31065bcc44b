// Where lanes that part at a branch meet again.
#pragma once

#include <vector>

#include "instruction.hpp"

namespace msa_ops::emulator::ptx {

// Of a body, the instructions from `start` to before `past`: sets Instruction::reconvergence of every branch to the
// first instruction that all ways from it pass (its immediate post-dominator), or to `past` if there is none. Ways that end early do not count, since lanes
// that have ended hold up nobody; neither is it worth meeting only to end together.
void find_reconvergence(std::vector<Instruction>& all, std::uint32_t start, std::uint32_t past);

}  // namespace msa_ops::emulator::ptx

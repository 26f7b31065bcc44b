// Waits at mbarriers that nobody asks whether they have succeeded.
#pragma once

#include <vector>

#include "instruction.hpp"

namespace msa_ops::emulator::ptx {

// Of a body, a kernel's or a function's, the instructions from `start` to before `past`, whose targets are known: sets Instruction::ignored of every
// mbarrier.try_wait and test_wait whose result decides nothing. Such a wait may have failed, so it orders nothing.
void find_ignored_waits(std::vector<Instruction>& all, std::uint32_t start, std::uint32_t past,
                        bool is_function);

}  // namespace msa_ops::emulator::ptx

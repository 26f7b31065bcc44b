// Which targets have which instructions, where that is not a matter of the generation alone.
#pragma once

#include <string>

namespace msa_ops::emulator::ptx {

// As ptxas decides for .target; true for instructions that are not restricted here.
bool target_has(const std::string& target, const std::string& opcode);

}  // namespace msa_ops::emulator::ptx

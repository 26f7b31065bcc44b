// Which words PTX has, so that what the emulator lacks is told from what does not exist.
#pragma once

#include <string>

namespace msa_ops::emulator::ptx {

// Whether the opcode, up to its first dot, is an instruction of PTX 9, executed here or not.
bool is_instruction(const std::string& opcode);

// The first modifier of the opcode that no instruction of PTX 9 has, with its dot; "" if there is none.
std::string unknown_modifier(const std::string& opcode);

// Whether the name, up to its first dot, is a special register of PTX 9, known here or not.
bool is_special_register(const std::string& name);

}  // namespace msa_ops::emulator::ptx

// The name of a form of an instruction: its opcode, and what its operands say of it.
#pragma once

#include <string>

#include "syntax.hpp"

namespace msa_ops::emulator::ptx {

// wgmma with A in registers, tcgen05.mma with A in tensor memory or with a mask, mov.b32 {a, b}, c and mov.b32 c, {a, b}
// and others are instructions of their own.
std::string form_name(const Statement& statement);

// Whether its result is a part of a register.
bool writes_part(const Statement& statement);

}  // namespace msa_ops::emulator::ptx

// Operands that must be constants, and what they may be.
#pragma once

#include "syntax.hpp"

namespace msa_ops::emulator::ptx {

// Throws PtxError, as ptxas refuses it: sizes of cp.async (16 bytes with .cg; 4, 8 or 16 with .ca), numbers of groups to wait for.
void check_constant_operands(const Statement& statement);

}  // namespace msa_ops::emulator::ptx

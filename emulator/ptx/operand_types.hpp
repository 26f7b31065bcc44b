// Which types of registers and literals an instruction takes.
//
// PTX's rules of operand types, as ptxas 13.5 applies them: bits fit everywhere; integers of either sign where an integer
// is wanted; floats where one of that format is. Formats that no register can be declared with (bf16, tf32, FP8, pairs of
// fp32) are bits, and have no literals. A number of bits takes any register, and literals of integers or of as many bits.
#pragma once

#include <string_view>
#include <vector>

#include "syntax.hpp"

namespace msa_ops::emulator::ptx {

// What `.reg .u32` says of its registers; nothing of a type that no register has.
RegisterType register_type(std::string_view type);

// Whether a modifier names a type of operands: "f32", "e4m3x2".
bool is_type(std::string_view modifier);

// Throws PtxError for the first operand of another type than the opcode takes there. Widths are not looked at, but for
// floats in places that take wider registers.
void check_operand_types(const Statement& statement, const std::vector<Register>& registers);

// Floats as literals in vectors become the bits that ptxas puts there: numbers of fp32 in vectors of fp32, else the
// lowest bits of what is written, so of 1.5 in a vector of 32 bits those of its fp64.
void resolve_literals(Statement& statement);

}  // namespace msa_ops::emulator::ptx

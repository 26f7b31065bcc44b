// Modifiers of an opcode in another order than the table's, which ptxas takes as well: ld.u32.global, fma.ftz.rn.f32.
#pragma once

#include <string>

namespace msa_ops::emulator::ptx {

// The opcode with its modifiers in the order of the table, caching hints, orders and scopes last; "" if no order of them
// is in the table, or ptxas 13.5 refuses this one. It takes every order in which types, and `row` and `col`, stand as
// they should to each other, and what belongs to the name (mul.lo, st.async, mbarrier.try_wait.parity) stands first;
// found out with 10,883 opcodes of all instructions that can be written in several orders but those of matrices other
// than mma, of copies, fences and tensor memory, which are left as they are.
std::string in_table_order(const std::string& opcode);

}  // namespace msa_ops::emulator::ptx

// What goes together in one vector operand: {%f1, %r1}, {0, %r1}.
#pragma once

#include <vector>

#include "syntax.hpp"

namespace msa_ops::emulator::ptx {

// What the registers of a vector are, for literals that stand beside them.
struct VectorRegisters {
  unsigned count = 0;  // without `_`
  bool bits = true;    // none of them says what it holds
};

// Throws PtxError, as ptxas 13.5 refuses it: registers of unlike widths; integers, floats, fp16 and pairs of it beside
// each other, literals too (registers of bits go with all, and part those on both sides of them); addresses; nothing but `_`.
VectorRegisters check_elements(const Statement& statement, const std::vector<Term>& elements,
                               const std::vector<Register>& registers);

}  // namespace msa_ops::emulator::ptx

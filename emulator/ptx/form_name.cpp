#include "form_name.hpp"

namespace msa_ops::emulator::ptx {
namespace {

// vadd, vset, not vadd2 or vote
bool is_scalar_video(const std::string& opcode) {
  const std::size_t dot = opcode.find('.');
  if (opcode[0] != 'v' || dot == std::string::npos || opcode.compare(0, dot, "vote") == 0) return false;
  return opcode[dot - 1] != '2' && opcode[dot - 1] != '4';
}

std::string vector_suffix(const Statement& statement) {
  if (statement.opcode.compare(0, 16, "wgmma.mma_async.") == 0 && statement.operands.size() > 1 &&
      statement.operands[1].kind == Term::Kind::kVector) {
    return " a" + std::to_string(statement.operands[1].terms.size());
  }
  if (statement.opcode.compare(0, 12, "tcgen05.mma.") == 0) {
    std::string suffix;
    if (statement.operands.size() > 1 && statement.operands[1].kind == Term::Kind::kAddress) suffix = " ta";
    for (const Term& term : statement.operands) {
      if (term.kind == Term::Kind::kVector) suffix += " m" + std::to_string(term.terms.size());
    }
    return suffix;
  }
  if ((statement.opcode.compare(0, 4, "min.") == 0 || statement.opcode.compare(0, 4, "max.") == 0) &&
      statement.operands.size() == 4) {
    return " of3";
  }
  if (is_scalar_video(statement.opcode) && writes_part(statement)) return " part";
  if (statement.opcode.compare(0, 4, "mov.") != 0 || statement.operands.size() != 2) return "";
  const Term& first = statement.operands[0];
  const Term& second = statement.operands[1];
  if (first.kind == Term::Kind::kVector) return " unpack" + std::to_string(first.terms.size());
  if (second.kind == Term::Kind::kVector) return " pack" + std::to_string(second.terms.size());
  return "";
}

}  // namespace

bool writes_part(const Statement& statement) {
  return !statement.operands.empty() && statement.operands[0].selector != 0;
}

std::string form_name(const Statement& statement) { return statement.opcode + vector_suffix(statement); }

}  // namespace msa_ops::emulator::ptx

#include "vector_elements.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "error.hpp"

namespace msa_ops::emulator::ptx {
namespace {

enum class Kind { kBits, kInteger, kFloat, kHalf, kHalves, kIntegerLiteral, kFloatLiteral };

Kind kind_of(RegisterType type) {
  switch (type) {
    case RegisterType::kInteger: return Kind::kInteger;
    case RegisterType::kFloat: return Kind::kFloat;
    case RegisterType::kHalf: return Kind::kHalf;
    case RegisterType::kHalves: return Kind::kHalves;
    case RegisterType::kBits: break;
  }
  return Kind::kBits;
}

bool go_together(Kind a, Kind b) {
  if (b < a) std::swap(a, b);
  if (a == b || a == Kind::kBits) return true;
  if (b == Kind::kIntegerLiteral) return a == Kind::kInteger;
  return b == Kind::kFloatLiteral && (a == Kind::kFloat || a == Kind::kHalf);
}

}  // namespace

VectorRegisters check_elements(const Statement& statement, const std::vector<Term>& elements,
                               const std::vector<Register>& registers) {
  const auto fail = [&](const char* what) {
    throw PtxError("`" + statement.opcode + "`: " + what, statement.line);
  };
  VectorRegisters made;
  const Register* first = nullptr;
  const auto is_sink = [](const Term& one) { return one.kind == Term::Kind::kName && one.name == "_"; };
  if (std::all_of(elements.begin(), elements.end(), is_sink)) fail("a vector of nothing but `_`");
  Kind before = Kind::kBits;
  for (const Term& one : elements) {
    Kind kind = Kind::kBits;
    switch (one.kind) {
      case Term::Kind::kRegister: {
        const Register& reg = registers[one.index];
        if (first != nullptr && first->width != reg.width) fail("registers of unlike widths in a vector");
        first = &reg;
        ++made.count;
        kind = kind_of(reg.type);
        made.bits = made.bits && kind == Kind::kBits;
        break;
      }
      case Term::Kind::kInteger: kind = Kind::kIntegerLiteral; break;
      case Term::Kind::kFloat32:
      case Term::Kind::kFloat64: kind = Kind::kFloatLiteral; break;
      case Term::Kind::kName:
        if (one.name != "_" && one.name[0] != '%') fail("an address in a vector");
        continue;
      default: continue;
    }
    if (!go_together(before, kind)) fail("elements of different types in a vector");
    // A literal takes the type of the register before it.
    if (one.kind == Term::Kind::kRegister || made.count == 0) before = kind;
  }
  return made;
}

}  // namespace msa_ops::emulator::ptx

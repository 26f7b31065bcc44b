#include "preparation.hpp"

#include <vector>

#include "constant_operands.hpp"
#include "control_flow.hpp"
#include "dropped_reads.hpp"
#include "error.hpp"
#include "features.hpp"
#include "form_name.hpp"
#include "ignored_waits.hpp"
#include "memory_order.hpp"
#include "modifier_order.hpp"
#include "opcodes.hpp"
#include "operand_types.hpp"
#include "quiet.hpp"
#include "special.hpp"
#include "state_spaces.hpp"
#include "vocabulary.hpp"

namespace msa_ops::emulator::ptx {
namespace {

bool has_float_in_vector(const Statement& statement) {
  for (const Term& operand : statement.operands) {
    if (operand.kind != Term::Kind::kVector) continue;
    for (const Term& one : operand.terms) {
      if (one.kind == Term::Kind::kFloat32 || one.kind == Term::Kind::kFloat64) return true;
    }
  }
  return false;
}

// mov.v4.u32 {a, b, c, d}, %tid
bool moves_special_vector(const Statement& statement) {
  return statement.opcode.compare(0, 4, "mov.") == 0 && statement.operands.size() == 2 &&
         statement.operands[1].kind == Term::Kind::kName && is_special_vector(statement.operands[1].name);
}

}  // namespace

Preparation::Preparation(Prepared& prepared, const Module& module, const Entry& entry, std::uint64_t shared_base,
                         std::uint64_t parameters)
    : prepared_(prepared),
      target_(module.target),
      layout_(prepared, module, entry, shared_base),
      maker_(prepared, layout_, entry, parameters),
      operands_(maker_),
      calls_(prepared, layout_, maker_) {}

void Preparation::run() {
  const std::vector<Part>& parts = layout_.parts();
  for (std::size_t number = 0; number < parts.size(); ++number) {
    const Part& part = parts[number];
    maker_.begin_part(number);
    for (const Statement& statement : part.body->statements) add(statement);
    if (parts.size() > 1) add_return();
    find_reconvergence(prepared_.instructions, part.first, part.end);
    find_ignored_waits(prepared_.instructions, part.first, part.end, number > 0);
  }
  if (parts.size() == 1) find_dropped_reads(prepared_.instructions, parts[0].first, parts[0].end);
  prepared_.end = parts[0].end;
}

// The end of a body, for ways that reach it.
void Preparation::add_return() {
  begin(*find_form("ret"), "ret",
        prepared_.instructions.empty() ? maker_.part().body->line : prepared_.instructions.back().line);
  push_instruction(prepared_.written.empty() ? "" : prepared_.written.back());
}

// Throws where there is none that is executed and that the target has.
const Form& Preparation::form_of(const Statement& statement, const std::string& name) const {
  const auto fail = [&](const std::string& what) {
    throw PtxError("`" + statement.opcode + "`: " + what, statement.line);
  };
  const Form* form = find_form(name);
  if (form == nullptr) {
    if (!is_instruction(name)) fail("PTX has no such instruction");
    if (const std::string part = unknown_modifier(statement.opcode); !part.empty()) {
      fail("PTX has no modifier `" + part + "`");
    }
    if (find_form(statement.opcode) != nullptr && writes_part(statement)) {
      fail("this instruction writes no part of a register");
    }
    throw Unsupported(name, statement.line);
  }
  if (!target_has(target_, name)) {
    throw PtxError("`" + name + "` is not supported on .target " + target_, statement.line);
  }
  return *form;
}

void Preparation::begin(const Form& form, const std::string& opcode, int line) {
  maker_.begin(opcode, line);
  Instruction& made = maker_.made();
  made.form = &form;
  made.handler = form.handler;
  made.changes = !is_quiet(form);
  made.line = line;
}

void Preparation::add(const Statement& statement) {
  if (moves_special_vector(statement)) {
    Statement in_full = statement;
    Term& vector = in_full.operands[1];
    vector.kind = Term::Kind::kVector;
    for (const char* component : {".x", ".y", ".z", ".w"}) {
      vector.terms.emplace_back();
      vector.terms.back().name = vector.name + component;
    }
    return add(in_full);
  }
  const std::string name = form_name(statement) + (is_of_call(statement) ? " of call" : "");
  if (find_form(name) == nullptr) {
    const std::string other = in_table_order(statement.opcode);
    if (!other.empty() && other != statement.opcode) {
      Statement ordered = statement;
      ordered.opcode = other;
      return add(ordered);
    }
  }
  check_order(statement);
  const Form& form = form_of(statement, name);
  if (statement.opcode.compare(0, 6, "wgmma.") == 0) prepared_.uses_wgmma = true;
  begin(form, statement.opcode, statement.line);
  Instruction& made = maker_.made();
  made.order = order_of(statement.opcode);
  made.scope = scope_of(statement.opcode);
  made.read_only = is_read_only(statement.opcode);
  if (statement.guarded) {
    Term guard;
    guard.kind = Term::Kind::kRegister;
    guard.index = statement.guard;
    made.guard = maker_.register_operand(guard, kPredicateWidth, false);
    made.guard.negated = statement.guard_negated;
  }
  if (form.control == Form::Control::kCall) {
    calls_.add(statement);
  } else {
    check_operand_types(statement, maker_.part().body->registers);
    check_constant_operands(statement);
    check_state_spaces(statement);
    if (has_float_in_vector(statement)) {
      Statement resolved = statement;
      resolve_literals(resolved);
      operands_.add(resolved);
    } else {
      operands_.add(statement);
    }
    made.moves = name == "mov.b32" || name == "mov.f32" || name == "mov.u32" || name == "mov.s32";
    made.moves = made.moves && !statement.guarded && made.operands[1].space != Operand::Space::kSpecial;
  }
  push_instruction(statement.written);
}

void Preparation::push_instruction(std::string_view written) {
  prepared_.instructions.push_back(maker_.made());
  prepared_.written.push_back(written);
}

// ld.param and st.param of a function's parameters, which are in the thread's local memory.
bool Preparation::is_of_call(const Statement& statement) const {
  const bool store = statement.opcode.compare(0, 8, "st.param") == 0;
  if (!store && statement.opcode.compare(0, 8, "ld.param") != 0) return false;
  if (store) return true;
  if (statement.operands.size() != 2 || statement.operands[1].terms.empty()) return false;
  const Term& base = statement.operands[1].terms[0];
  return base.kind == Term::Kind::kName && maker_.part().local.count(base.name) != 0;
}

}  // namespace msa_ops::emulator::ptx

// The operands of a statement, as the form of its instruction takes them (Form::operands).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "operand_maker.hpp"
#include "syntax.hpp"

namespace msa_ops::emulator::ptx {

class FormOperands {
 public:
  explicit FormOperands(OperandMaker& maker) : maker_(maker) {}

  // All of a statement, for the instruction that `maker` makes. Throws PtxError.
  void add(const Statement& statement);

 private:
  bool is_other(const std::string& spec, const Term& term) const;
  void add_operand(const std::string& spec, const Term& term, const Statement& statement);
  void add_part(const std::string& spec, const Term& term, bool destination);
  void add_unchecked(const std::string& spec, const Term& term, const Statement& statement);
  const std::vector<Term>& vector_of(const std::string& spec, const Term& term) const;
  void add_vector(const Term& term, bool destination);
  void add_address(const Term& term);
  void add_coordinates(const std::string& spec, const Term& term);
  void add_place(const Term& term, char space);
  void add_jump_table(const Term& term, unsigned scope);
  std::uint32_t label(const Term& term, unsigned scope) const;
  Instruction& made() { return maker_.made(); }
  [[noreturn]] void fail(const std::string& what) const { maker_.fail(what); }

  OperandMaker& maker_;
};

}  // namespace msa_ops::emulator::ptx

// Calls of functions from their statements.
#pragma once

#include <cstdint>
#include <string>

#include "calls.hpp"
#include "layout.hpp"
#include "operand_maker.hpp"
#include "prepared.hpp"
#include "syntax.hpp"

namespace msa_ops::emulator::ptx {

class CallMaker {
 public:
  CallMaker(Prepared& prepared, const Layout& layout, OperandMaker& maker)
      : prepared_(prepared), layout_(layout), maker_(maker) {}

  // For the instruction that `maker` makes. Throws PtxError.
  void add(const Statement& statement);

 private:
  CallCopy::Place own(const Formal& formal, const Part& of) const;
  CallCopy::Place actual(const Term& term, const Formal& formal, bool is_result);
  Instruction& made() { return maker_.made(); }
  [[noreturn]] void fail(const std::string& what) const { maker_.fail(what); }

  Prepared& prepared_;
  const Layout& layout_;
  OperandMaker& maker_;
};

}  // namespace msa_ops::emulator::ptx

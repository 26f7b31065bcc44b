// From the statements of a kernel and the functions that it may call to instructions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "call_maker.hpp"
#include "form_operands.hpp"
#include "layout.hpp"
#include "operand_maker.hpp"
#include "prepared.hpp"
#include "syntax.hpp"

namespace msa_ops::emulator::ptx {

class Preparation {
 public:
  // `parameters`: their address in the host's memory.
  Preparation(Prepared& prepared, const Module& module, const Entry& entry, std::uint64_t shared_base,
              std::uint64_t parameters);

  // Fills in all of `prepared`. Throws PtxError or Unsupported for the first instruction that cannot be executed.
  void run();

 private:
  void add(const Statement& statement);
  void add_return();
  const Form& form_of(const Statement& statement, const std::string& name) const;
  void begin(const Form& form, const std::string& opcode, int line);
  void push_instruction(std::string_view written);
  bool is_of_call(const Statement& statement) const;

  Prepared& prepared_;
  const std::string& target_;
  Layout layout_;
  OperandMaker maker_;
  FormOperands operands_;
  CallMaker calls_;
};

}  // namespace msa_ops::emulator::ptx

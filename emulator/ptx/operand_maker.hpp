// Operands of instructions from terms of statements: registers, constants, special registers, addresses of variables.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "instruction.hpp"
#include "layout.hpp"
#include "prepared.hpp"
#include "special.hpp"
#include "syntax.hpp"

namespace msa_ops::emulator::ptx {

// Appends to the operands of one instruction after the other. Every function throws PtxError for what the instruction
// does not take, and Unsupported for a special register that is not known here.
class OperandMaker {
 public:
  // `parameters`: their address in the host's memory.
  OperandMaker(Prepared& prepared, const Layout& layout, const Entry& entry, std::uint64_t parameters)
      : prepared_(prepared), layout_(layout), entry_(entry), parameters_(parameters) {}

  void begin_part(std::size_t number) { part_ = number; }
  void begin(const std::string& opcode, int line) {
    made_ = {};
    opcode_ = opcode;
    line_ = line;
  }
  Instruction& made() { return made_; }
  const Instruction& made() const { return made_; }
  const std::string& opcode() const { return opcode_; }
  const Part& part() const { return layout_.parts()[part_]; }
  bool is_in_kernel() const { return part_ == 0; }  // not in a function
  const Entry& entry() const { return entry_; }

  // `width` in bytes, or kPredicateWidth; `wider`: a register may have more.
  void push(const Term& term, unsigned width, bool wider, bool destination);
  void push_constant(std::uint64_t value, unsigned width);
  // The address of a variable of this space; false if the name is another one's.
  bool push_variable(const std::string& name, MemorySpace memory);
  std::uint64_t distance(const Term& term) const;  // of variable + 4, variable[1], in bytes
  Operand register_operand(const Term& term, unsigned width, bool wider) const;
  [[noreturn]] void fail(const std::string& what) const;

 private:
  void push_name(const Term& term, unsigned width);
  void push_special_register(const SpecialValue& special, const Term& term, unsigned width);
  void push_special(std::uint32_t offset, unsigned width);
  void push_sink(unsigned width);
  void push_shared(std::uint64_t address, unsigned width);

  Prepared& prepared_;
  const Layout& layout_;
  const Entry& entry_;
  std::uint64_t parameters_;
  std::size_t part_ = 0;  // whose statements are being added
  std::map<std::pair<std::uint64_t, unsigned>, std::size_t> constants_;  // places of values of a width
  std::map<unsigned, Operand> sinks_;
  Instruction made_;
  int line_ = 0;
  std::string opcode_;
};

}  // namespace msa_ops::emulator::ptx

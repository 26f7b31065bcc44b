// Declarations of variables: .global .align 8 .v2 .b32 a[2][3] = {{{1, 2}}}, b;
//
// As ptxas 13.5 takes them. Lists of initial values may be shorter than the array and stand one behind the other,
// whichever dimension they are of.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "syntax.hpp"
#include "token_reader.hpp"

namespace msa_ops::emulator::ptx {

// Bytes of a type that a variable or a register may have; kPredicateWidth.
unsigned width_of_type(std::string_view type, int line);

class VariableReader {
 public:
  explicit VariableReader(TokenReader& tokens) : in_(tokens) {}

  // Variables of a state space, from it up to the semicolon and with it. External ones have no initial values, and may
  // leave their size open.
  std::vector<Variable> list(bool is_external);
  // .param .align 8 .b8 name[16] of a function or of a call
  Variable parameter();
  // [16] behind a name, of elements of `width` bytes: the bytes of all; 0 if it is open.
  std::uint64_t array(unsigned width);

 private:
  struct Type {
    std::string name;
    unsigned width = 0;  // of an element
    unsigned vector = 1;
  };
  Variable kind(const std::string& space);  // what stands before the names
  std::uint64_t elements();               // [3]; 0: [] or [0]
  std::uint64_t arrays();                 // [2][3]; their bytes, 0 if the first is open
  void initialize(Variable& variable, const std::string& space, bool is_external);
  void values(Variable& variable, std::size_t depth);  // levels that are left
  void value(Variable& variable);
  void number(Variable& variable);
  void address(Variable& variable);
  void count(std::uint64_t elements, unsigned width, int line);

  TokenReader& in_;
  std::uint64_t all_bytes_ = 0;  // of variables so far
  Type type_;                    // of the present declaration
  std::vector<std::uint64_t> levels_;  // bytes of the present name, of one of its elements, ...; 0: open
  std::uint64_t step_ = 0;             // bytes of what the first of them counts
};

}  // namespace msa_ops::emulator::ptx

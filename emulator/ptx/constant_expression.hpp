// Constant expressions: integers of 64 bits, signed or not, and fp64.
//
// The operators and their precedence are those of the PTX manual. What ptxas 13.5 does beyond its words: shifts take the
// lowest six bits of the distance and the type of what is shifted; `?:` has the type of the operand that it takes; floats
// know + - * /, comparisons and signs, do not mix with integers, and 0f... does not take part in an expression.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lexer.hpp"

namespace msa_ops::emulator::ptx {

struct Constant {
  enum class Kind { kSigned, kUnsigned, kDouble, kSingle };  // kSingle: the bits of 0f...
  Kind kind = Kind::kSigned;
  std::uint64_t bits = 0;

  bool is_integer() const { return kind == Kind::kSigned || kind == Kind::kUnsigned; }
};

class ConstantExpression {
 public:
  // From token `at` on; it is moved past what is read. The last token is the end of the text.
  ConstantExpression(const std::vector<Token>& tokens, std::size_t& at) : tokens_(tokens), at_(at) {}

  // Whether one begins here: a number, WARP_SZ, a parenthesis, or a sign or `~` or `!` in front of one.
  bool begins() const;
  // Each throws PtxError: no expression, a division by zero, types that do not go together, nested too deeply.
  Constant whole();
  Constant product();  // * / % and what binds as strongly

 private:
  const Token& peek(std::size_t ahead = 0) const {
    return tokens_[at_ + ahead < tokens_.size() ? at_ + ahead : tokens_.size() - 1];
  }
  bool accept(const char* marks);
  [[noreturn]] void fail(const char* what) const;
  Constant binary(unsigned level);
  Constant unary();
  Constant primary();
  Constant number();
  Constant combine(const char* marks, const Constant& a, const Constant& b) const;

  const std::vector<Token>& tokens_;
  std::size_t& at_;
  unsigned depth_ = 0;
};

}  // namespace msa_ops::emulator::ptx

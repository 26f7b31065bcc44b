// Tokens one after another, and the numbers that PTX writes everywhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "constant_expression.hpp"
#include "lexer.hpp"

namespace msa_ops::emulator::ptx {

class TokenReader {
 public:
  explicit TokenReader(std::string_view source) : tokens_(tokenize(source)) {}

  const Token& peek(std::size_t ahead = 0) const {
    return tokens_[at_ + ahead < tokens_.size() ? at_ + ahead : tokens_.size() - 1];
  }
  const Token& next() {
    const Token& token = peek();
    if (token.kind != Token::Kind::kEnd) ++at_;
    return token;
  }
  bool is_at_end() const { return peek().kind == Token::Kind::kEnd; }
  bool accept(char mark) {
    if (!peek().is(mark)) return false;
    ++at_;
    return true;
  }
  void expect(char mark);
  std::string word(const char* wanted);
  [[noreturn]] void fail(const std::string& wanted) const;  // PtxError: what comes next is not it

  Constant constant() { return ConstantExpression(tokens_, at_).whole(); }
  bool constant_begins() { return ConstantExpression(tokens_, at_).begins(); }
  std::uint64_t integer();  // a number, or what binds as strongly
  std::uint64_t integer_of(const Constant& value) const;
  std::uint64_t distance();   // + 4 - 8 * 2, as often as there are more
  std::uint64_t alignment();  // of .align

 private:
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
};

}  // namespace msa_ops::emulator::ptx

#include "token_reader.hpp"

#include "error.hpp"

namespace msa_ops::emulator::ptx {
namespace {

constexpr std::uint64_t kMostAlignment = 1 << 16;

}  // namespace

void TokenReader::fail(const std::string& wanted) const {
  throw PtxError("expected " + wanted + ", found `" + std::string(peek().text) + "`", peek().line);
}

void TokenReader::expect(char mark) {
  if (!accept(mark)) fail(std::string("`") + mark + "`");
}

std::string TokenReader::word(const char* wanted) {
  if (peek().kind != Token::Kind::kWord) fail(wanted);
  return std::string(next().text);
}

std::uint64_t TokenReader::integer() {
  if (peek().kind != Token::Kind::kNumber) fail("an integer");
  return integer_of(ConstantExpression(tokens_, at_).product());
}

std::uint64_t TokenReader::integer_of(const Constant& value) const {
  if (!value.is_integer()) fail("an integer");
  return value.bits;
}

std::uint64_t TokenReader::distance() {
  std::uint64_t sum = 0;
  while (peek().is('+') || peek().is('-')) {
    const bool negative = next().is('-');
    const std::uint64_t value = integer_of(ConstantExpression(tokens_, at_).product());
    sum += negative ? ~value + 1 : value;
  }
  return sum;
}

std::uint64_t TokenReader::alignment() {
  const int line = peek().line;
  const std::uint64_t value = integer();
  if (value == 0 || (value & (value - 1)) != 0 || value > kMostAlignment) {
    throw PtxError("an alignment of " + std::to_string(value) + "; accepted: powers of two up to " +
                       std::to_string(kMostAlignment), line);
  }
  return value;
}

}  // namespace msa_ops::emulator::ptx

#include "constant_expression.hpp"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string>
#include <string_view>

#include "error.hpp"
#include "instruction.hpp"

namespace msa_ops::emulator::ptx {
namespace {

using Kind = Constant::Kind;

constexpr unsigned kMostNesting = 200;
// Operators of a level, the weakest first; of those that begin alike the longest first.
constexpr const char* kLevels[][5] = {
    {"||"}, {"&&"}, {"|"}, {"^"}, {"&"}, {"==", "!="}, {"<=", ">=", "<", ">"}, {"<<", ">>"}, {"+", "-"}, {"*", "/", "%"}};
constexpr unsigned kProducts = 9;

double to_double(std::uint64_t bits) {
  double value = 0;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

Constant of_double(double value) {
  Constant made{Kind::kDouble, 0};
  std::memcpy(&made.bits, &value, sizeof(value));
  return made;
}

Constant of_truth(bool value) { return {Kind::kSigned, value ? 1U : 0U}; }

unsigned digit_of(char c) {
  if (c >= '0' && c <= '9') return static_cast<unsigned>(c - '0');
  if (c >= 'a' && c <= 'f') return static_cast<unsigned>(c - 'a') + 10;
  return c >= 'A' && c <= 'F' ? static_cast<unsigned>(c - 'A') + 10 : 99;
}

bool is_single(const std::string_view text) {
  return text.size() > 2 && text[0] == '0' && (text[1] == 'f' || text[1] == 'F');
}

bool is(const char* a, const char* b) { return std::strcmp(a, b) == 0; }

template <typename T>
bool compares(const char* marks, T a, T b) {
  if (is(marks, "==")) return a == b;
  if (is(marks, "!=")) return a != b;
  if (is(marks, "<")) return a < b;
  if (is(marks, "<=")) return a <= b;
  if (is(marks, ">")) return a > b;
  return a >= b;
}

}  // namespace

bool ConstantExpression::begins() const {
  std::size_t ahead = 0;
  while (peek(ahead).is('-') || peek(ahead).is('+') || peek(ahead).is('~') || peek(ahead).is('!')) ++ahead;
  return peek(ahead).kind == Token::Kind::kNumber || peek(ahead).is('(') || peek(ahead).text == "WARP_SZ";
}

bool ConstantExpression::accept(const char* marks) {
  const std::size_t count = std::strlen(marks);
  for (std::size_t i = 0; i < count; ++i) {
    if (!peek(i).is(marks[i])) return false;
    // Marks of one operator stand together.
    if (i > 0 && peek(i).text.data() != peek(i - 1).text.data() + 1) return false;
  }
  // `|` is not half of `||`, nor `&` of `&&`, nor `<` of `<<`.
  const Token& next = peek(count);
  const bool doubled = count == 1 && next.kind == Token::Kind::kMark && next.is(marks[0]) &&
                       next.text.data() == peek().text.data() + 1;
  if (doubled && std::strchr("|&<>", marks[0]) != nullptr) return false;
  at_ += count;
  return true;
}

void ConstantExpression::fail(const char* what) const { throw PtxError(std::string("constant expression: ") + what, peek().line); }

Constant ConstantExpression::whole() {
  if (++depth_ > kMostNesting) throw PtxError("operands nested too deeply", peek().line);
  Constant value = binary(0);
  if (accept("?")) {
    const Constant yes = whole();
    if (!accept(":")) fail("expected `:`");
    const Constant no = whole();
    if (!value.is_integer() || !yes.is_integer() || !no.is_integer()) fail("`?:` takes integers");
    value = value.bits != 0 ? yes : no;
  }
  --depth_;
  return value;
}

Constant ConstantExpression::product() { return binary(kProducts); }

Constant ConstantExpression::binary(unsigned level) {
  if (level == std::size(kLevels)) return unary();
  Constant value = binary(level + 1);
  for (bool more = true; more;) {
    more = false;
    for (const char* marks : kLevels[level]) {
      if (marks == nullptr || !accept(marks)) continue;
      value = combine(marks, value, binary(level + 1));
      more = true;
      break;
    }
  }
  return value;
}

Constant ConstantExpression::combine(const char* marks, const Constant& a, const Constant& b) const {
  if (a.kind == Kind::kSingle || b.kind == Kind::kSingle) fail("0f... stands alone");
  if (a.is_integer() != b.is_integer()) fail("an integer and a float");
  const bool compared = is(marks, "==") || is(marks, "!=") || marks[0] == '<' || marks[0] == '>';
  const bool shifts = is(marks, "<<") || is(marks, ">>");
  if (!a.is_integer()) {
    const double x = to_double(a.bits), y = to_double(b.bits);
    if (compared && !shifts) return of_truth(compares(marks, x, y));
    if (is(marks, "+")) return of_double(x + y);
    if (is(marks, "-")) return of_double(x - y);
    if (is(marks, "*")) return of_double(x * y);
    if (is(marks, "/")) return of_double(x / y);
    fail("an operator that takes integers");
  }
  const std::uint64_t x = a.bits, y = b.bits;
  if (shifts) {
    const unsigned distance = y % 64;
    if (is(marks, "<<")) return {a.kind, x << distance};
    if (a.kind == Kind::kUnsigned) return {a.kind, x >> distance};
    return {a.kind, static_cast<std::uint64_t>(static_cast<std::int64_t>(x) >> distance)};
  }
  if (is(marks, "&&")) return of_truth(x != 0 && y != 0);
  if (is(marks, "||")) return of_truth(x != 0 || y != 0);
  const bool is_signed = a.kind == Kind::kSigned && b.kind == Kind::kSigned;
  const Kind kind = is_signed ? Kind::kSigned : Kind::kUnsigned;
  const auto i = static_cast<std::int64_t>(x), j = static_cast<std::int64_t>(y);
  if (compared) return of_truth(is_signed ? compares(marks, i, j) : compares(marks, x, y));
  switch (marks[0]) {
    case '+': return {kind, x + y};
    case '-': return {kind, x - y};
    case '*': return {kind, x * y};
    case '&': return {kind, x & y};
    case '|': return {kind, x | y};
    case '^': return {kind, x ^ y};
    default: break;
  }
  if (y == 0) fail("a division by zero");
  const bool divides = marks[0] == '/';
  if (is_signed && j == -1) return {kind, divides ? ~x + 1 : 0};  // the smallest number has no opposite
  if (is_signed) return {kind, static_cast<std::uint64_t>(divides ? i / j : i % j)};
  return {kind, divides ? x / y : x % y};
}

Constant ConstantExpression::unary() {
  if (++depth_ > kMostNesting) throw PtxError("operands nested too deeply", peek().line);
  Constant value;
  if ((peek().is('-') || peek().is('+')) && is_single(peek(1).text)) fail("a sign before 0f...");
  if (accept("-")) {
    value = unary();
    if (value.kind == Kind::kDouble) value.bits ^= std::uint64_t{1} << 63;
    else if (value.kind == Kind::kSingle) value.bits ^= std::uint64_t{1} << 31;
    else value.bits = ~value.bits + 1;
  } else if (accept("+")) {
    value = unary();
  } else if (accept("~")) {
    value = unary();
    if (!value.is_integer()) fail("`~` takes an integer");
    value.bits = ~value.bits;
  } else if (accept("!")) {
    value = unary();
    if (!value.is_integer()) fail("`!` takes an integer");
    value = of_truth(value.bits == 0);
  } else if (peek().is('(') && (peek(1).text == ".s64" || peek(1).text == ".u64") && peek(2).is(')')) {
    const Kind kind = peek(1).text == ".s64" ? Kind::kSigned : Kind::kUnsigned;
    at_ += 3;
    value = unary();
    if (!value.is_integer()) fail("a cast takes an integer");
    value.kind = kind;
  } else {
    value = primary();
  }
  --depth_;
  return value;
}

Constant ConstantExpression::primary() {
  if (accept("(")) {
    const Constant value = whole();
    if (!accept(")")) throw PtxError("expected `)`, found `" + std::string(peek().text) + "`", peek().line);
    return value;
  }
  if (peek().text == "WARP_SZ") {
    ++at_;
    return {Kind::kSigned, kLanes};
  }
  if (peek().kind != Token::Kind::kNumber) throw PtxError("expected a number, found `" + std::string(peek().text) + "`", peek().line);
  return number();
}

Constant ConstantExpression::number() {
  const Token& token = peek();
  ++at_;
  std::string text(token.text);
  const auto refuse = [&](const char* what) { throw PtxError("`" + std::string(token.text) + "` " + what, token.line); };
  char* end = nullptr;
  const bool single = is_single(text);
  if (single || (text.size() > 2 && text[0] == '0' && (text[1] == 'd' || text[1] == 'D'))) {
    const std::uint64_t bits = std::strtoull(text.c_str() + 2, &end, 16);
    if (*end != '\0' || text.size() != (single ? 10U : 18U)) refuse("is no number of 8 or 16 hexadecimal digits");
    return {single ? Kind::kSingle : Kind::kDouble, bits};
  }
  const bool hexadecimal = text.compare(0, 2, "0x") == 0 || text.compare(0, 2, "0X") == 0;
  if (text.find('.') != std::string::npos || (!hexadecimal && text.find_first_of("eE") != std::string::npos)) {
    errno = 0;
    const double value = std::strtod(text.c_str(), &end);
    if (*end != '\0') refuse("is not a number");
    if (errno == ERANGE) refuse("is beyond the normal numbers of fp64");
    return of_double(value);
  }
  const bool is_unsigned = text.back() == 'U';
  if (is_unsigned) text.pop_back();
  const bool binary = text.size() > 2 && text[0] == '0' && (text[1] == 'b' || text[1] == 'B');
  const unsigned base = hexadecimal ? 16 : binary ? 2 : text[0] == '0' ? 8 : 10;
  // As ptxas counts: without what is beyond 64 bits, but nothing follows a number that has the highest of them.
  std::uint64_t bits = 0;
  for (std::size_t at = hexadecimal || binary ? 2 : 0; at < text.size(); ++at) {
    const unsigned digit = digit_of(text[at]);
    if (digit >= base) refuse("is not an integer");
    if (bits >> 63 != 0) refuse("has more than 64 bits");
    bits = bits * base + digit;
  }
  if (text.size() == (hexadecimal || binary ? 2U : 0U)) refuse("is not an integer");
  return {is_unsigned || bits >> 63 != 0 ? Kind::kUnsigned : Kind::kSigned, bits};
}

}  // namespace msa_ops::emulator::ptx

#include "lexer.hpp"

#include <cctype>
#include <cstdio>
#include <cstring>

#include "error.hpp"

namespace msa_ops::emulator::ptx {
namespace {

bool starts_word(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) != 0 || (c != '\0' && std::strchr("_$%.", c) != nullptr);
}

bool in_word(char c) { return starts_word(c) || std::isdigit(static_cast<unsigned char>(c)) != 0; }

}  // namespace

std::vector<Token> tokenize(std::string_view source) {
  std::vector<Token> tokens;
  int line = 1;
  std::size_t at = 0;
  const auto peek = [&](std::size_t ahead) { return at + ahead < source.size() ? source[at + ahead] : '\0'; };
  const auto add = [&](Token::Kind kind, std::size_t length) {
    tokens.push_back({kind, source.substr(at, length), line});
    at += length;
  };
  while (at < source.size()) {
    const char c = source[at];
    if (c == '\n') ++line;
    if (std::isspace(static_cast<unsigned char>(c)) != 0) {
      ++at;
    } else if (c == '/' && peek(1) == '/') {
      while (at < source.size() && source[at] != '\n') ++at;
    } else if (c == '/' && peek(1) == '*') {
      const std::size_t end = source.find("*/", at + 2);
      if (end == std::string_view::npos) throw PtxError("comment without end", line);
      for (; at < end + 2; ++at) line += source[at] == '\n';
    } else if (c == '"') {
      const std::size_t end = source.find('"', at + 1);
      if (end == std::string_view::npos) throw PtxError("string without end", line);
      add(Token::Kind::kString, end + 1 - at);
    } else if (std::isdigit(static_cast<unsigned char>(c == '.' ? peek(1) : c)) != 0) {  // 5, .5
      std::size_t length = 1;
      const bool plain = c != '0' || std::isdigit(static_cast<unsigned char>(peek(1))) != 0 || peek(1) == '.';
      while (std::isalnum(static_cast<unsigned char>(peek(length))) != 0 || peek(length) == '.' ||
             (plain && (peek(length) == '-' || peek(length) == '+') && std::tolower(peek(length - 1)) == 'e')) {
        ++length;
      }
      add(Token::Kind::kNumber, length);
    } else if (starts_word(c) && (c != '%' || in_word(peek(1)))) {
      std::size_t length = 1;
      while (in_word(peek(length)) || (peek(length) == ':' && peek(length + 1) == ':')) {
        length += peek(length) == ':' ? 2 : 1;
      }
      add(Token::Kind::kWord, length);
    } else if (c != '\0' && std::strchr("{}[]()<>,;:@!|+-=*/%&^~?", c) != nullptr) {
      add(Token::Kind::kMark, 1);
    } else {
      char shown[8];
      std::snprintf(shown, sizeof(shown), c > 0x20 && c < 0x7f ? "%c" : "\\x%02x", static_cast<unsigned char>(c));
      throw PtxError(std::string("unexpected character '") + shown + "'", line);
    }
  }
  tokens.push_back({Token::Kind::kEnd, "end of text", line});
  return tokens;
}

}  // namespace msa_ops::emulator::ptx

// PTX text as tokens.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace msa_ops::emulator::ptx {

struct Token {
  enum class Kind { kWord, kNumber, kString, kMark, kEnd };
  Kind kind;
  std::string_view text;  // into the source; a mark is one character
  int line;

  bool is(char mark) const { return kind == Kind::kMark && text[0] == mark; }
};

// Words hold dots and double colons, so that an opcode with its modifiers, a directive and a register are one each.
// The last token is of kind kEnd. Throws PtxError for a character that no PTX has.
std::vector<Token> tokenize(std::string_view source);

}  // namespace msa_ops::emulator::ptx

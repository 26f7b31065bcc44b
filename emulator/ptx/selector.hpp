// Parts of registers in operands of video instructions: %r1.b2, %r1.h1, %r1.b3210, -%r1.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "instruction.hpp"

namespace msa_ops::emulator::ptx {

// Which bytes or halves, the last digit of the text first; kept in Operand::addend.
struct Selector {
  unsigned bits = 0;   // 8 or 16
  unsigned count = 0;  // digits; 0: the whole register
  std::uint32_t digits = 0;  // of four bits
  bool negative = false;

  Selector() = default;
  explicit Selector(const Operand& operand)
      : bits((operand.addend & 1) != 0 ? 16 : 8),
        count(operand.addend >> 1 & 7),
        digits(operand.addend >> 4 & 0xffff),
        negative((operand.addend & negative_bit()) != 0) {}
  unsigned index(unsigned at) const { return digits >> (4 * at) & 15; }
  std::uint32_t packed() const { return static_cast<std::uint32_t>(bits == 16) | count << 1 | digits << 4; }
  static constexpr std::uint32_t negative_bit() { return 1U << 20; }
};

// "b0", "h10", "b7654"; nothing for another text.
inline std::optional<Selector> selector_of(std::string_view text) {
  Selector made;
  if (text.size() < 2 || text.size() > 5 || (text[0] != 'b' && text[0] != 'h')) return std::nullopt;
  made.bits = text[0] == 'h' ? 16 : 8;
  made.count = static_cast<unsigned>(text.size() - 1);
  if (made.bits == 16 && made.count > 2) return std::nullopt;
  for (std::size_t at = 1; at < text.size(); ++at) {
    if (text[at] < '0' || text[at] > (made.bits == 16 ? '3' : '7')) return std::nullopt;
    made.digits = made.digits << 4 | static_cast<unsigned>(text[at] - '0');
  }
  return made;
}

}  // namespace msa_ops::emulator::ptx

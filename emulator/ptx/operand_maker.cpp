#include "operand_maker.hpp"

#include <cstring>

#include "error.hpp"
#include "vocabulary.hpp"

namespace msa_ops::emulator::ptx {

void OperandMaker::push(const Term& term, unsigned width, bool wider, bool destination) {
  if (term.negated && (destination || width != kPredicateWidth)) fail("`!`");
  if (term.selector != 0) fail("a part of a register, or a negative one");
  switch (term.kind) {
    case Term::Kind::kRegister: {
      const Operand operand = register_operand(term, width, wider);
      (destination ? made_.destinations : made_.sources).push_back(operand.index);
      made_.operands.push_back(operand);
      return;
    }
    case Term::Kind::kInteger:
      if (destination) break;
      if (width == kPredicateWidth) {
        push_constant(term.value != 0 ? kAllLanes : 0, kPredicateWidth);
        made_.operands.back().negated = term.negated;
      } else {
        push_constant(term.value, width);
      }
      return;
    case Term::Kind::kFloat32: {
      if (destination || (width != 4 && width != 8)) break;
      if (width == 4) return push_constant(term.value, width);
      float value = 0;
      const auto word = static_cast<std::uint32_t>(term.value);
      std::memcpy(&value, &word, sizeof(value));
      const double wide = value;
      std::uint64_t bits = 0;
      std::memcpy(&bits, &wide, sizeof(bits));
      return push_constant(bits, width);
    }
    case Term::Kind::kFloat64: {
      if (destination || (width != 4 && width != 8)) break;
      if (width == 8) return push_constant(term.value, width);
      double value = 0;
      std::memcpy(&value, &term.value, sizeof(value));
      const auto narrow = static_cast<float>(value);
      std::uint32_t bits = 0;
      std::memcpy(&bits, &narrow, sizeof(bits));
      return push_constant(bits, width);
    }
    case Term::Kind::kName:
      if (term.name == "_" && destination && term.value == 0) return push_sink(width);
      if (term.name[0] == '%' && !is_special_register(term.name)) fail("register `" + term.name + "` is not declared");
      if (destination) break;
      return push_name(term, width);
    default: break;
  }
  fail("an operand of another kind than the instruction takes");
}

// A destination that nobody reads.
void OperandMaker::push_sink(unsigned width) {
  const auto [found, is_new] = sinks_.try_emplace(width, Operand{});
  if (is_new) {
    Operand& operand = found->second;
    operand.width = static_cast<std::uint8_t>(width);
    operand.present = true;
    operand.offset = static_cast<std::uint32_t>(prepared_.register_bytes);
    operand.index = static_cast<std::uint32_t>(prepared_.registers.size());
    prepared_.registers.push_back({"_", width});
    prepared_.register_bytes += width == kPredicateWidth ? 16 : width * kLanes;
  }
  made_.destinations.push_back(found->second.index);
  made_.operands.push_back(found->second);
}

Operand OperandMaker::register_operand(const Term& term, unsigned width, bool wider) const {
  const Register& reg = part().body->registers[term.index];
  const bool predicate = width == kPredicateWidth;
  const bool fits = wider ? reg.width >= width && reg.width != kPredicateWidth : reg.width == width;
  if (!fits) {
    fail("register `" + reg.name + "` is " +
         (reg.width == kPredicateWidth ? "a predicate" : "of " + std::to_string(reg.width) + " bytes") +
         "; the instruction takes " + (predicate ? "a predicate" : std::to_string(width) + " bytes"));
  }
  Operand operand;
  operand.width = static_cast<std::uint8_t>(reg.width);
  operand.negated = term.negated;
  operand.present = true;
  operand.index = part().first_register + term.index;
  operand.offset = layout_.place(operand.index);
  return operand;
}

void OperandMaker::push_constant(std::uint64_t value, unsigned width) {
  if (width < 8 && width != kPredicateWidth) value &= (std::uint64_t{1} << (8 * width)) - 1;
  const auto [found, is_new] = constants_.try_emplace({value, width}, prepared_.constants.size());
  if (is_new) {
    for (unsigned lane = 0; lane < kLanes; ++lane) {
      const auto* bytes = reinterpret_cast<const unsigned char*>(&value);
      prepared_.constants.insert(prepared_.constants.end(), bytes, bytes + (width == kPredicateWidth ? 4 : width));
    }
  }
  Operand operand;
  operand.space = Operand::Space::kConstants;
  operand.width = static_cast<std::uint8_t>(width);
  operand.present = true;
  operand.offset = static_cast<std::uint32_t>(found->second);
  made_.operands.push_back(operand);
}

void OperandMaker::fail(const std::string& what) const { throw PtxError("`" + opcode_ + "`: " + what, line_); }

}  // namespace msa_ops::emulator::ptx

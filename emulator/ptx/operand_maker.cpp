#include "operand_maker.hpp"

#include <algorithm>
#include <cstring>

#include "calls.hpp"
#include "error.hpp"
#include "special.hpp"
#include "vocabulary.hpp"
#include "warp.hpp"

namespace msa_ops::emulator::ptx {
namespace {

void with_clock(PtxWarp& warp, const Instruction& instruction, Mask lanes) {
  warp.refresh_clock();
  instruction.form->handler(warp, instruction, lanes);
}

}  // namespace

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
    case Term::Kind::kName: {
      if (term.name == "_" && destination && term.value == 0) return push_sink(width);
      if (term.name[0] == '%' && !is_special_register(term.name)) fail("register `" + term.name + "` is not declared");
      if (destination) break;
      const auto& table = special_registers();
      const auto special = std::find_if(table.begin(), table.end(),
                                        [&](const SpecialRegister& one) { return one.name == term.name; });
      if (special != table.end()) {
        if (width != special->width || term.value != 0) break;
        const auto which = static_cast<Special>(special - table.begin());
        push_special(offset_of(which), special->width);
        if (counts_time(which)) {
          made_.handler = with_clock;
          made_.changes = true;  // time goes on
        }
        return;
      }
      if (const auto found = layout_.shared().find(term.name); found != layout_.shared().end() && width >= 4) {
        return push_shared(found->second + term.value, width);
      }
      if (const auto found = part().local.find(term.name); found != part().local.end() && width >= 4) {
        return push_constant(found->second + term.value, width);
      }
      for (const Parameter& parameter : entry_.parameters) {
        if (is_in_kernel() && parameter.name == term.name && width == 8) {
          return push_constant(parameters_ + parameter.offset + term.value, 8);
        }
      }
      if (const auto found = layout_.variables().find(term.name); found != layout_.variables().end() && width == 8) {
        return push_constant(found->second + term.value, width);
      }
      if (const auto found = layout_.numbers().find(term.name); found != layout_.numbers().end() && width == 8) {
        return push_constant(kFunctionWindow | found->second, width);
      }
      if (term.name[0] == '%') throw Unsupported(term.name, line_);
      fail("`" + term.name + "` is not known here");
    }
    default: break;
  }
  fail("an operand of another kind than the instruction takes");
}

void OperandMaker::push_special(std::uint32_t offset, unsigned width) {
  Operand operand;
  operand.space = Operand::Space::kSpecial;
  operand.width = static_cast<std::uint8_t>(width);
  operand.present = true;
  operand.offset = offset;
  made_.operands.push_back(operand);
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

void OperandMaker::push_shared(std::uint64_t address, unsigned width) {
  auto& known = prepared_.shared_addresses;
  const auto place = static_cast<std::uint32_t>(std::find(known.begin(), known.end(), address) - known.begin());
  if (place == known.size()) known.push_back(address);
  push_special(special_bytes() + place * (4 + 8) * kLanes + (width == 8 ? 4 * kLanes : 0), width);
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

// The address of a variable of this space; false if the name is another one's.
bool OperandMaker::push_variable(const std::string& name, MemorySpace memory) {
  if (memory == MemorySpace::kShared || memory == MemorySpace::kCluster) {
    const auto found = layout_.shared().find(name);
    if (found != layout_.shared().end()) push_shared(found->second, 4);
    return found != layout_.shared().end();
  }
  const auto& table = memory == MemorySpace::kLocal ? part().local : layout_.variables();
  const auto found = table.find(name);
  if (found != table.end()) push_constant(found->second, memory == MemorySpace::kLocal ? 4 : 8);
  return found != table.end();
}

void OperandMaker::fail(const std::string& what) const { throw PtxError("`" + opcode_ + "`: " + what, line_); }

}  // namespace msa_ops::emulator::ptx

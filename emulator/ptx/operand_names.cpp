// Names as operands: special registers, variables, parameters, functions and kernels.
#include <algorithm>
#include <string>

#include "calls.hpp"
#include "error.hpp"
#include "lanes.hpp"
#include "operand_maker.hpp"
#include "special.hpp"
#include "warp.hpp"

namespace msa_ops::emulator::ptx {
namespace {

void with_clock(PtxWarp& warp, const Instruction& instruction, Mask lanes) {
  warp.refresh_clock();
  instruction.form->handler(warp, instruction, lanes);
}

// mov of the lowest bits of something wider, of each element of a vector.
void move_lowest(PtxWarp& warp, const Instruction& i, Mask lanes) {
  const std::size_t count = i.operands.size() / 2;
  for (std::size_t at = 0; at < count; ++at) {
    for_lanes(lanes, [&](unsigned lane) {
      warp.set_value(i.operands[at], lane, warp.value(i.operands[count + at], lane));
    });
  }
}

}  // namespace

void OperandMaker::push_name(const Term& term, unsigned width) {
  if (const auto special = find_special(term.name)) return push_special_register(*special, term, width);
  const bool is_mov = opcode_.compare(0, 4, "mov.") == 0;
  if (const auto found = layout_.shared().find(term.name); found != layout_.shared().end()) {
    if (width == 2 && is_mov) {
      made_.handler = move_lowest;
      return push_shared(found->second + distance(term), 4);
    }
    if (width >= 4) return push_shared(found->second + distance(term), width);
  }
  const bool narrow = width >= 4 || (width == 2 && is_mov);
  if (const auto found = part().local.find(term.name); found != part().local.end() && narrow) {
    return push_constant(found->second + distance(term), width);
  }
  for (const Parameter& parameter : entry_.parameters) {
    if (is_in_kernel() && parameter.name == term.name && width == 8 && !term.is_subscript) {
      return push_constant(parameters_ + parameter.offset + term.value, 8);
    }
  }
  if (const auto found = layout_.variables().find(term.name); found != layout_.variables().end()) {
    const bool fits = width == 8 || (narrow && layout_.is_constant(term.name));  // of which 32 bits tell the rest
    if (fits) return push_constant(found->second + distance(term), width);
  }
  if (const auto code = layout_.code_of(term.name); code != 0 && width >= 4 && is_mov) {
    if (term.value != 0 || term.is_subscript) fail("an address beside that of a function");
    return push_constant(code, width);
  }
  if (term.name[0] == '%') throw Unsupported(term.name, line_);
  fail("`" + term.name + "` is not known here");
}

void OperandMaker::push_special_register(const SpecialValue& special, const Term& term, unsigned width) {
  const bool is_mov = opcode_.compare(0, 4, "mov.") == 0;
  const bool takes_lowest = is_mov && width < special.width && width >= special.least_width;
  if ((width != special.width && !takes_lowest) || term.value != 0 || term.is_subscript) {
    fail("an operand of another kind than the instruction takes");
  }
  if (special.is_zero) return push_constant(0, width);
  if (takes_lowest) made_.handler = move_lowest;
  push_special(offset_of(special.which), special.width);
  if (counts_time(special.which)) {
    made_.handler = with_clock;
    made_.changes = true;  // time goes on
  }
}

std::uint64_t OperandMaker::distance(const Term& term) const {
  if (!term.is_subscript) return term.value;
  const std::uint64_t bytes = layout_.element_bytes(part(), term.name);
  if (bytes == 0) fail("a subscript of `" + term.name + "`, which is no array");
  return term.value * bytes;
}

void OperandMaker::push_special(std::uint32_t offset, unsigned width) {
  Operand operand;
  operand.space = Operand::Space::kSpecial;
  operand.width = static_cast<std::uint8_t>(width);
  operand.present = true;
  operand.offset = offset;
  made_.operands.push_back(operand);
}

void OperandMaker::push_shared(std::uint64_t address, unsigned width) {
  auto& known = prepared_.shared_addresses;
  const auto place = static_cast<std::uint32_t>(std::find(known.begin(), known.end(), address) - known.begin());
  if (place == known.size()) known.push_back(address);
  push_special(special_bytes() + place * (4 + 8) * kLanes + (width == 8 ? 4 * kLanes : 0), width);
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

}  // namespace msa_ops::emulator::ptx

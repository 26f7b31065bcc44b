// Instructions as text, for messages.
#include <cstdio>

#include "instruction.hpp"

namespace msa_ops::emulator::gfx950 {
namespace {

std::string range(char file, unsigned first, unsigned count) {
  if (count == 1) return file + std::to_string(first);
  return std::string(1, file) + "[" + std::to_string(first) + ":" + std::to_string(first + count - 1) + "]";
}

std::string name_of_scalar(unsigned index, unsigned dwords) {
  if (index == kVcc) return dwords == 2 ? "vcc" : "vcc_lo";
  if (index == kVcc + 1) return "vcc_hi";
  if (index == kM0) return "m0";
  if (index == kExec) return dwords == 2 ? "exec" : "exec_lo";
  if (index == kExec + 1) return "exec_hi";
  return range('s', index, dwords);
}

std::string text_of(const Operand& operand) {
  std::string text;
  switch (operand.kind) {
    case Operand::Kind::kVector:
      text = range(operand.index < kAccumulators ? 'v' : 'a', operand.index % kAccumulators, operand.dwords);
      break;
    case Operand::Kind::kScalar: text = name_of_scalar(operand.index, operand.dwords); break;
    case Operand::Kind::kConstant: {
      const auto value = static_cast<std::int64_t>(operand.dwords == 2 ? static_cast<std::int64_t>(operand.constant)
                                                                        : static_cast<std::int32_t>(operand.constant));
      if (value >= -16 && value <= 64) {
        text = std::to_string(value);
      } else {
        text = hex(operand.constant);
      }
      break;
    }
    case Operand::Kind::kScc: text = "src_scc"; break;
    default: return "";
  }
  if (operand.absolute) text = "|" + text + "|";
  return operand.negate ? "-" + text : text;
}

}  // namespace

std::string hex(std::uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof(text), "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

std::string text_of(const Instruction& i) {
  std::string text = i.scaled ? std::string("v_mfma_scale") + (i.form->name + 6) : i.form->name;
  std::string operands;
  const auto add = [&](const std::string& operand) {
    if (!operand.empty()) operands += (operands.empty() ? " " : ", ") + operand;
  };
  const auto add_offset = [&](std::int32_t offset) {
    if (offset != 0) operands += " offset:" + std::to_string(offset);
  };
  switch (i.encoding) {
    case Encoding::kSopp:
      if ((i.form->flags & kBranch) != 0) operands = " " + hex(i.address + 4 + static_cast<unsigned>(i.immediate * 4));
      else if (i.form->number == 12) {
        const auto field = static_cast<unsigned>(i.immediate) & 0xffff;
        const unsigned vector = (field & 15) | (field >> 14 & 3) << 4, lds = field >> 8 & 15;
        if (vector < 63) operands += " vmcnt(" + std::to_string(vector) + ")";
        if (lds < 15) operands += " lgkmcnt(" + std::to_string(lds) + ")";
      } else if (i.form->number == 0 || i.form->number >= 14) operands = " " + std::to_string(i.immediate);
      break;
    case Encoding::kSmem:
      add(text_of(i.destination));
      add(text_of(i.sources[0]));
      if (i.sources[1].kind != Operand::Kind::kNone) add(text_of(i.sources[1]));
      if (i.form->sources[0] != Type::kNone) add(hex(static_cast<unsigned>(i.immediate)));
      break;
    case Encoding::kDs:
      add(text_of(i.destination));
      for (const Operand& operand : i.sources) add(text_of(operand));
      add_offset(i.immediate);
      break;
    case Encoding::kFlat: case Encoding::kGlobal: case Encoding::kScratch: case Encoding::kMubuf:
      add(text_of(i.destination));
      if (i.encoding == Encoding::kMubuf && i.destination.kind == Operand::Kind::kNone) add(text_of(i.sources[1]));
      add(text_of(i.sources[0]));
      if (i.encoding != Encoding::kMubuf) add(text_of(i.sources[1]));
      add(i.mask_source.kind == Operand::Kind::kScalar ? text_of(i.mask_source)
          : i.encoding == Encoding::kMubuf             ? ""
                                                       : "off");
      if (i.encoding == Encoding::kMubuf) add(text_of(i.sources[2]));
      if (i.offset_enable) operands += " offen";
      if (i.index_enable) operands += " idxen";
      add_offset(i.immediate);
      if (i.sc0) operands += " sc0";
      if (i.nt) operands += " nt";
      if (i.sc1) operands += " sc1";
      if (i.to_lds) operands += " lds";
      break;
    default:
      add(text_of(i.destination));
      add(text_of(i.mask_destination));
      for (const Operand& operand : i.sources) add(text_of(operand));
      add(text_of(i.mask_source));
      if (i.encoding == Encoding::kSopk) add(hex(static_cast<unsigned>(i.immediate) & 0xffff));
      for (const Operand& operand : i.scales) add(text_of(operand));
      if (i.form->number >= 563 && i.form->number <= 564 && i.encoding == Encoding::kVop3)
        operands += " bitop3:" + hex(static_cast<unsigned>(i.immediate));
      if (i.clamp) operands += " clamp";
      if (i.sdwa) operands += " sdwa";
      if (i.dpp) operands += " dpp:" + hex(i.dpp_control);
      break;
  }
  return text + operands;
}

}  // namespace msa_ops::emulator::gfx950

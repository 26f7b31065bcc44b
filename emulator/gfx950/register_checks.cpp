// What a register must hold before an instruction reads it.
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "forms.hpp"
#include "wave.hpp"

namespace msa_ops::emulator::gfx950 {

Mask Wave::check_reads(const Instruction& instruction) {
  const Form& form = *instruction.form;
  Mask all_missing = 0;
  const Mask lanes = (form.flags & kIgnoresExec) != 0 ? kAllLanes : exec();
  for (unsigned i = 0; i < instruction.num_vector_reads; ++i) {
    const Range& range = instruction.vector_reads[i];
    for (unsigned r = range.first; r < unsigned{range.first} + range.count; ++r) {
      Mask missing = lanes & ~ready_[r];
      if (missing == 0) continue;
      missing = without_accepted(r, missing);
      if ((missing & pending_[r]) != 0) report_undefined(r, missing & pending_[r]);
      // A part that is all that the operand takes may be there.
      for (const Operand& operand : instruction.sources) {
        if (operand.kind != Operand::Kind::kVector || operand.index != range.first || range.count != 1) continue;
        unsigned bytes = 15;
        if (instruction.sdwa) {
          bytes = operand.select < 4 ? 1U << operand.select : operand.select < 6 ? 3U << (operand.select - 4) * 2 : 15U;
        } else if (operand.type == Type::kB8) {
          bytes = 1;
        } else if (operand.type == Type::kF16 || operand.type == Type::kB16) {
          bytes = operand.high ? 12 : 3;
        }
        if (bytes != 15 && bytes_defined(r, bytes, lanes)) missing = 0;
      }
      if (form.encoding == Encoding::kVop2 && form.number == 0 &&
          instruction.mask_source.kind == Operand::Kind::kScalar) {
        // v_cndmask takes one of its sources.
        const Mask chosen = sgpr64(instruction.mask_source.index);
        const bool first = instruction.sources[0].kind == Operand::Kind::kVector && instruction.sources[0].index == r;
        const bool second = instruction.sources[1].kind == Operand::Kind::kVector && instruction.sources[1].index == r;
        if (!(first && second)) missing &= first ? ~chosen : chosen;
      }
      if (const Mask found = missing & unused_[r]; found != 0) {
        use(r, found);
        missing &= ~found;
      }
      if (missing == 0) continue;
      // Sums of 64 bits whose upper half nobody wants are made with whatever the upper half of a summand holds.
      const bool sums =
          form.encoding == Encoding::kVop3 && (form.number == 488 || form.number == 489 || form.number == 520);
      if (sums && range.count == 2 && r == range.first + 1U && instruction.sources[2].kind == Operand::Kind::kVector &&
          instruction.sources[2].index == range.first) {
        if (origins_[r].kind == Origin::Kind::kUnknown)
          origins_[r] = {at_, static_cast<std::uint16_t>(r), Origin::Kind::kRegister};
        missing_from_ = r;
        missing_high_ |= missing;
        continue;
      }
      // What is missing is handed on by arithmetic; it is at fault where it decides something or leaves the registers.
      const bool hands_on = form.function != nullptr && instruction.mask_destination.kind == Operand::Kind::kNone;
      const bool moves = form.encoding == Encoding::kMfma && (form.number == 88 || form.number == 89);
      const bool to_lds = form.encoding == Encoding::kDs && r != instruction.sources[0].index && std::strncmp(form.name, "ds_write", 8) == 0;
      if (to_lds && origins_[r].kind != Origin::Kind::kRace) continue;  // its bytes there have no value then
      if (!hands_on && !moves) report_undefined(r, missing);
      if (origins_[r].kind == Origin::Kind::kUnknown)
        origins_[r] = {at_, static_cast<std::uint16_t>(r), Origin::Kind::kRegister};
      missing_from_ = r;
      all_missing |= missing;
    }
  }
  check_scalars(instruction);
  return all_missing;
}

void Wave::undefine_from(unsigned index, Mask lanes, unsigned from) {
  undefine(index, lanes);
  origins_[index] = origins_[from].kind != Origin::Kind::kUnknown
                        ? origins_[from]
                        : Origin{at_, static_cast<std::uint16_t>(from), Origin::Kind::kRegister};
}

void Wave::require_scalar(unsigned index) const {
  if (scalar_state_[index] == 1) return;
  if (scalar_state_[index] == 2) {
    if (accepts(FaultKind::kMissingWait)) return;
    throw Violation{FaultKind::kMissingWait,
                    name_of_scalar(index) + " is read while a scalar load is on its way to it"};
  }
  throw Violation{FaultKind::kUninitializedRegister, name_of_scalar(index) + " is read and has no value"};
}

std::uint64_t Wave::lacking(const Operand& operand) const {
  std::uint64_t bits = 0;
  if (operand.kind != Operand::Kind::kScalar) return 0;
  for (unsigned word = 0; word < operand.dwords; ++word) {
    const unsigned index = operand.index + word;
    const std::uint8_t state = scalar_state_[index];
    if (state == 2) require_scalar(index);
    const std::uint32_t of_word = state == 0 ? ~0U : state == 3 ? scalar_lacking_[index] : 0;
    bits |= std::uint64_t{of_word} << 32 * word;
  }
  return bits;
}

// Compilers keep a condition of lanes that have gone elsewhere beside that of the present ones, by s_andn2, s_and and
// s_or with exec: at first the former has no value.
bool Wave::hands_on_bits(const Instruction& instruction) {
  const unsigned number = instruction.form->number;
  const Operand &first = instruction.sources[0], &second = instruction.sources[1];
  if (instruction.encoding == Encoding::kSop1) {
    if (number == 4 || number == 5) {  // s_not
      result_lacking_ = lacking(first);
      return true;
    }
    return number == 32 && (lacking(first) & exec()) == 0;  // s_and_saveexec_b64
  }
  if (instruction.encoding != Encoding::kSop2) {
    const Operand& mask = instruction.mask_source;
    return mask.kind == Operand::Kind::kScalar && mask.dwords == 2 && (lacking(mask) & exec()) == 0 &&
           lacking(first) == 0 && lacking(second) == 0 && lacking(instruction.sources[2]) == 0;
  }
  const std::uint64_t a = value64(first), b = value64(second), no_a = lacking(first), no_b = lacking(second);
  const auto conjunction = [&](std::uint64_t x, std::uint64_t y) { return (no_a & (y | no_b)) | (no_b & (x | no_a)); };
  switch (number & ~1U) {  // with 64 bits the odd one
    case 10: result_lacking_ = scc_ ? no_a : no_b; break;               // s_cselect
    case 12: case 22: result_lacking_ = conjunction(a, b); break;       // s_and, s_nand
    case 14: case 24: result_lacking_ = conjunction(~a, ~b); break;     // s_or, s_nor
    case 16: case 26: result_lacking_ = no_a | no_b; break;             // s_xor, s_xnor
    case 18: result_lacking_ = conjunction(a, ~b); break;               // s_andn2
    case 20: result_lacking_ = conjunction(~a, b); break;               // s_orn2
    default: return false;
  }
  if (instruction.destination.dwords == 1) result_lacking_ &= 0xffffffff;
  return true;
}

void Wave::note_lacking_bits(const Instruction& instruction) {
  const Operand& to = instruction.destination;
  if (to.index <= kExec + 1 && to.index + to.dwords > kExec) {
    throw Violation{FaultKind::kUninitializedRegister, "exec is made of bits that have no value"};
  }
  for (unsigned word = 0; word < to.dwords; ++word) {
    const auto bits = static_cast<std::uint32_t>(result_lacking_ >> 32 * word);
    scalar_lacking_[to.index + word] = bits;
    scalar_state_[to.index + word] = bits == 0 ? 1 : 3;
  }
  if (instruction.encoding == Encoding::kSop2 && (instruction.form->number & ~1U) == 10) return;  // leaves scc
  const std::uint64_t value = to.dwords == 2 ? sgpr64(to.index) : sgpr(to.index);
  scc_known_ = (value & ~result_lacking_) != 0;
}

void Wave::check_scalars(const Instruction& instruction) {
  if (instruction.encoding == Encoding::kSop1 && instruction.form->number <= 1)
    return;  // s_mov hands on what is missing
  for (unsigned i = 0; i < instruction.num_scalar_reads; ++i) {
    const Range& range = instruction.scalar_reads[i];
    for (unsigned r = range.first; r < unsigned{range.first} + range.count; ++r) {
      if (scalar_state_[r] != 1 && !hands_on_bits(instruction)) require_scalar(r);
    }
  }
  if ((instruction.form->flags & kReadsScc) != 0 && !scc_known_) {
    throw Violation{FaultKind::kUninitializedRegister, "scc is read and has no value"};
  }
}

Mask Wave::defined(const Range& range) const {
  Mask lanes = kAllLanes;
  for (unsigned r = range.first; r < unsigned{range.first} + range.count; ++r) {
    if (unused_[r] != 0) use(r, unused_[r] & ~ready_[r]);
    lanes &= ready_[r];
  }
  return lanes;
}

void Wave::undefine(unsigned index, Mask lanes) {
  ready_[index] &= ~lanes;
  unused_[index] &= ~lanes;
  if (!bytes_.empty()) {
    for (Mask& mask : bytes_[index]) mask &= ~lanes;
  }
}

void Wave::define_bytes(unsigned index, unsigned byte_mask, Mask lanes) {
  if (unused_[index] != 0) use(index, unused_[index] & ~ready_[index]);
  if ((lanes & ~ready_[index]) == 0) return;
  if (bytes_.empty()) bytes_.resize(kRows);
  Mask all = kAllLanes;
  for (unsigned byte = 0; byte < 4; ++byte) {
    if ((byte_mask >> byte & 1) != 0) bytes_[index][byte] |= lanes;
    all &= bytes_[index][byte];
  }
  ready_[index] |= all & lanes;
}

bool Wave::bytes_defined(unsigned index, unsigned byte_mask, Mask lanes) const {
  if (bytes_.empty()) return false;
  Mask all = kAllLanes;
  for (unsigned byte = 0; byte < 4; ++byte) {
    if ((byte_mask >> byte & 1) != 0) all &= bytes_[index][byte];
  }
  return (lanes & ~(ready_[index] | all)) == 0;
}

void Wave::report_undefined(unsigned index, Mask lanes) const {
  if (const Mask flying = lanes & pending_[index]; flying != 0) {
    std::string where;
    const auto look = [&](const std::vector<Outstanding>& queue, unsigned head, unsigned count, const char* counter) {
      for (unsigned i = 0; i < count; ++i) {
        const Outstanding& operation = queue[(head + i) % queue.size()];
        if (index >= operation.registers.first &&
            index < unsigned{operation.registers.first} + operation.registers.count &&
            (operation.lanes & flying) != 0) {
          where = " of " + hex(kernel_.instructions()[operation.instruction].address) + " (" + counter + ")";
        }
      }
    };
    look(vector_queue_, vector_head_, vector_count_, "vmcnt");
    look(lds_queue_, lds_head_, lds_count_, "lgkmcnt");
    throw Violation{FaultKind::kMissingWait, name_of_row(index) + " is read before a wait for the load" + where,
                    lowest(flying)};
  }
  const Origin& origin = origins_[index];
  if (origin.kind != Origin::Kind::kUnknown && origin.instruction != at_) {
    const std::string use = "; what comes of it is used at " + hex(kernel_.instructions()[at_].address) + " `" +
                            text_of(kernel_.instructions()[at_]) + "`";
    blamed_ = origin.instruction;
    if (origin.kind == Origin::Kind::kOutside) {
      throw Violation{FaultKind::kOutOfBounds, "read outside the workgroup's LDS" + use, lowest(lanes)};
    }
    if (origin.kind == Origin::Kind::kLds) {
      throw Violation{FaultKind::kUninitializedShared, "read of bytes of the LDS that nothing has written" + use,
                      lowest(lanes)};
    }
    if (origin.kind == Origin::Kind::kRace) {
      Violation race = races_.at(origin.instruction);
      race.message += use;
      throw race;
    }
    if (origin.kind == Origin::Kind::kUnseen) {
      const Coherence::Unseen& why = unseen_.at(origin.instruction);
      throw Violation{why.kind(), "the load " + why.text() + use, lowest(lanes)};
    }
    throw Violation{FaultKind::kUninitializedRegister, name_of_row(origin.row) + " is read and has no value" + use,
                    lowest(lanes)};
  }
  throw Violation{FaultKind::kUninitializedRegister, name_of_row(index) + " is read and has no value", lowest(lanes)};
}

}  // namespace msa_ops::emulator::gfx950

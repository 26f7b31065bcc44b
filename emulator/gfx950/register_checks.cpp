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

void Wave::check_scalars(const Instruction& instruction) const {
  if (instruction.encoding == Encoding::kSop1 && instruction.form->number <= 1)
    return;  // s_mov hands on what is missing
  for (unsigned i = 0; i < instruction.num_scalar_reads; ++i) {
    const Range& range = instruction.scalar_reads[i];
    for (unsigned r = range.first; r < unsigned{range.first} + range.count; ++r) {
      if (scalar_state_[r] != 1) require_scalar(r);
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

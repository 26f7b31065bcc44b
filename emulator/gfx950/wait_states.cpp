// Wait states: what the hardware does not wait for by itself. Sources: the CDNA3 and CDNA4 ISA guides' tables of wait
// states that software must insert, and what LLVM's AMDGPU backend inserts for gfx940 and gfx950.
#include <algorithm>
#include <cstring>
#include <string>

#include "forms.hpp"
#include "wave.hpp"

namespace msa_ops::emulator::gfx950 {
namespace {

[[noreturn]] void too_early(const std::string& what, std::uint64_t has, std::uint64_t needs) {
  throw Violation{FaultKind::kWaitStates,
                  what + " " + std::to_string(has) + " wait states later; it takes " + std::to_string(needs)};
}

bool is_product(const Instruction& i) {
  return i.encoding == Encoding::kMfma && i.form->number != 88 && i.form->number != 89;
}
bool is_fp64_product(const Instruction& i) { return i.form->number == 110 || i.form->number == 111; }
// fp32 matrices are done by other units than the rest.
bool is_fp32_product(const Instruction& i) { return i.form->number >= 64 && i.form->number <= 69; }

unsigned passes_of(const Instruction& i) {
  const unsigned passes = i.form->flags >> kPassesShift & 255;
  const bool narrow = (i.form->number == 45 || i.form->number == 46) && i.broadcast_size >= 2 && i.b_layout >= 2;
  return narrow ? passes / 2 : passes;  // no operand of 8 bits
}

}  // namespace

std::uint16_t hazards_of(const Instruction& i) {
  if (i.form == nullptr) return 0;
  const bool is_valu = i.encoding >= Encoding::kVop1 && i.encoding <= Encoding::kMfma;
  const unsigned number = i.form->number;
  unsigned made = 0;
  if (std::strncmp(i.form->name, "v_dot", 5) == 0) made |= kDotProduct;
  const bool part = i.sdwa ? i.destination_select != 6
                           : is_valu && i.destination.kind == Operand::Kind::kVector && i.destination.high;
  if (part) made |= kPlacedResult;
  if (is_valu && (i.form->flags & kWritesExec) != 0) made |= kLaneMask;
  const bool is_lane = (i.encoding == Encoding::kVop1 && number == 2) ||
                       (i.encoding == Encoding::kVop3 && (number == 649 || number == 650));
  const bool is_swap = i.encoding == Encoding::kVop1 && (number == 89 || number == 90);
  if (is_lane || is_swap || is_product(i)) made |= kAllLanesAtOnce;
  const bool is_fma64 =
      i.form->encoding == Encoding::kVop3 ? number == 460 : i.form->encoding == Encoding::kVop2 && number == 4;
  if (is_fma64) made |= kFma64;
  const bool is_store = i.encoding >= Encoding::kFlat && i.sources[1].kind == Operand::Kind::kVector && !i.to_lds;
  const bool has_offset = i.encoding == Encoding::kMubuf && i.sources[2].kind == Operand::Kind::kScalar;
  if (is_store && i.sources[1].dwords > 2 && !has_offset) made |= kWideStore;
  return static_cast<std::uint16_t>(made);
}

void Wave::check_wait_states(const Instruction& instruction) {
  const Encoding encoding = instruction.encoding;
  if (encoding < Encoding::kVop1) {
    if (encoding == Encoding::kSopk) check_hardware_register(instruction);
    return;
  }
  const bool is_valu = encoding <= Encoding::kMfma;
  const bool is_matrix = is_product(instruction);
  if (is_matrix && clock_ < matrix_free_) clock_ = matrix_free_;  // the unit is busy and the instruction waits for it
  const auto since = [&](std::uint64_t issued) { return clock_ - issued - 1; };
  if (clock_ < matrix_horizon_) check_matrix_results(instruction, is_matrix, is_valu);
  if (is_valu && clock_ < rare_horizon_) check_rare(instruction);
  // Vector instructions that wrote a vector register.
  const unsigned number = instruction.form->number;
  const bool is_swap = encoding == Encoding::kVop1 && (number == 89 || number == 90);
  const bool is_lane = (encoding == Encoding::kVop1 && number == 2) || (encoding == Encoding::kVop3 && number == 649);
  const bool is_transcendental = (instruction.form->flags & kTranscendental) != 0;
  if (is_valu) {
    const unsigned needs = is_swap || is_matrix ? 2 : is_lane ? 1 : 0;
    const auto check_row = [&](unsigned r, unsigned wanted) {
      const Issued& row = issued_[r];
      if (row.valu + 3 < clock_) return;
      if (row.transcendental && !is_transcendental) wanted = std::max(wanted, 1U);
      if (since(row.valu) >= wanted) return;
      too_early(name_of_row(r) + " is read after a vector instruction wrote it,", since(row.valu), wanted);
    };
    for (unsigned i = 0; i < instruction.num_vector_reads; ++i) {
      const Range& range = instruction.vector_reads[i];
      for (unsigned r = range.first; r < unsigned{range.first} + range.count; ++r) {
        check_row(r, instruction.dpp && instruction.sources[0].index == r ? std::max(needs, 2U) : needs);
      }
    }
    if (is_swap) check_row(instruction.destination.index, 2);
  }
  // Vector instructions that wrote a scalar register.
  for (unsigned i = 0; i < instruction.num_scalar_reads; ++i) {
    const Range& range = instruction.scalar_reads[i];
    for (unsigned r = range.first; r < unsigned{range.first} + range.count && r < 128; ++r) {
      const std::uint64_t issued = scalar_issued_[r];
      if (issued == 0 || issued + 6 < clock_) continue;
      unsigned needs = is_valu ? 2 : encoding == Encoding::kDs ? 0 : 5;
      const bool selects_lane = encoding == Encoding::kVop3 && (number == 649 || number == 650) &&
                                instruction.sources[1].kind == Operand::Kind::kScalar &&
                                instruction.sources[1].index == r;
      if (selects_lane) needs = 4;
      // A carry or a condition comes another way than a constant does.
      const Operand& mask = instruction.mask_source;
      const bool is_mask =
          is_valu && mask.kind == Operand::Kind::kScalar && range.first == mask.index && range.count == mask.dwords;
      if (is_mask) needs = 0;
      if (encoding == Encoding::kVop3 && number == 482 && r >= kVcc) needs = 4;  // v_div_fmas
      if (since(issued) < needs) {
        too_early(name_of_scalar(r) + " is read after a vector instruction wrote it,", since(issued), needs);
      }
    }
  }
}

void Wave::check_matrix_results(const Instruction& instruction, bool is_matrix, bool is_valu) {
  const auto check_row = [&](unsigned r, bool accumulates) {
    const Issued& row = issued_[r];
    if (row.matrix == 0) return;
    unsigned needs = is_valu ? row.matrix_use : row.matrix_memory;
    // A result that is taken whole as the next accumulator is handed on inside the unit, wherever that one's result
    // goes; after two passes this takes two states more.
    if (accumulates) {
      const bool whole = row.first == instruction.sources[2].index && row.count == instruction.sources[2].dwords;
      needs = whole ? row.handed_on : row.matrix_accumulate;
    }
    if (const std::uint64_t has = clock_ - row.matrix - 1; has < needs) {
      too_early("result of a matrix instruction in " + name_of_row(r) + " is used", has, needs);
    }
  };
  for (unsigned i = 0; i < instruction.num_vector_reads; ++i) {
    const Range& range = instruction.vector_reads[i];
    const Operand& addend = instruction.sources[2];
    const bool accumulates = is_matrix && addend.kind == Operand::Kind::kVector && range.first == addend.index &&
                             range.count == addend.dwords;
    for (unsigned r = range.first; r < unsigned{range.first} + range.count; ++r) check_row(r, accumulates);
  }
  // Matrix instructions write their results in order.
  for (unsigned i = 0; i < instruction.num_vector_writes && !is_matrix; ++i) {
    const Range& range = instruction.vector_writes[i];
    for (unsigned r = range.first; r < unsigned{range.first} + range.count; ++r) check_row(r, false);
  }
}

// What few instructions leave behind, so that most need not look.
void Wave::check_rare(const Instruction& instruction) {
  const auto since = [&](std::uint64_t issued) { return clock_ - issued - 1; };
  const bool is_matrix = is_product(instruction);
  if (lanes_masked_ != 0) {
    const unsigned needs = instruction.dpp ? 5 : (instruction.hazards & kAllLanesAtOnce) != 0 ? 4 : 0;
    if (since(lanes_masked_) < needs) {
      too_early("an instruction over several lanes comes after a vector instruction wrote exec,", since(lanes_masked_),
                needs);
    }
  }
  if ((instruction.hazards & kFma64) != 0 && fp64_product_ != 0 && since(fp64_product_) < 2) {
    too_early("fp64 arithmetic comes after a matrix instruction of fp64,", since(fp64_product_), 2);
  }
  for (unsigned i = 0; i < instruction.num_vector_reads; ++i) {
    const Range& range = instruction.vector_reads[i];
    for (unsigned r = range.first; r < unsigned{range.first} + range.count; ++r) {
      const Rare& row = rare_[r];
      if (row.dot != nullptr) {
        const Operand& addend = instruction.sources[2];
        const bool hands_on =
            row.dot == instruction.form && !is_matrix &&
            (instruction.encoding == Encoding::kVop2 ? r == instruction.destination.index
                                                     : addend.kind == Operand::Kind::kVector && addend.index == r);
        if (!hands_on && since(row.dot_at) < 3) {
          too_early("the dot product in " + name_of_row(r) + " is used", since(row.dot_at), 3);
        }
      }
      if (row.placed != 0 && since(row.placed) < 1) {
        too_early(name_of_row(r) + " is read after a part of it was written,", since(row.placed), 1);
      }
    }
  }
  for (unsigned i = 0; i < instruction.num_vector_writes && !is_matrix; ++i) {
    const Range& range = instruction.vector_writes[i];
    for (unsigned r = range.first; r < unsigned{range.first} + range.count; ++r) {
      const Rare& row = rare_[r];
      if (row.stored != 0 && since(row.stored) < 2) {
        too_early(name_of_row(r) + " is written after a store of more than 64 bits from it,", since(row.stored), 2);
      }
      if (row.addend != 0 && since(row.addend) < row.addend_states) {
        too_early(name_of_row(r) + " is written after a matrix instruction began to read it,", since(row.addend),
                  row.addend_states);
      }
      if (row.dot != nullptr && row.dot != instruction.form && since(row.dot_at) < 3) {
        too_early("the dot product in " + name_of_row(r) + " is written over", since(row.dot_at), 3);
      }
    }
  }
}

void Wave::check_hardware_register(const Instruction& instruction) {
  const unsigned number = instruction.form->number;
  if (number != 17 && number != 18 && number != 20) return;  // s_getreg, s_setreg
  const unsigned id = static_cast<unsigned>(instruction.immediate) & 63;
  if (hardware_register_at_ != 0 && hardware_register_ == id && clock_ - hardware_register_at_ - 1 < 2) {
    too_early("a hardware register is used after s_setreg wrote it,", clock_ - hardware_register_at_ - 1, 2);
  }
  if (number == 17) return;
  hardware_register_ = id;
  hardware_register_at_ = clock_;
}

void Wave::note_store(const Instruction& instruction) {
  const Operand& data = instruction.sources[1];
  for (unsigned r = data.index; r < unsigned{data.index} + data.dwords; ++r) rare_[r].stored = clock_;
  rare_horizon_ = std::max(rare_horizon_, clock_ + 4);
}

void Wave::note_issue(const Instruction& instruction) {
  const bool is_matrix = is_product(instruction);
  for (unsigned i = 0; i < instruction.num_vector_writes; ++i) {
    const Range& range = instruction.vector_writes[i];
    unsigned passes = 0, use = 0, memory = 0, accumulate = 0;
    if (is_matrix) {
      passes = passes_of(instruction);
      const bool plain = is_fp32_product(instruction);
      use = plain ? passes + 2 : passes + 3 + (passes != 2 ? 1 : 0);
      if (is_fp64_product(instruction)) use = passes == 4 ? 6 : 19;
      memory = is_fp64_product(instruction) ? (passes == 4 ? 9 : 18) : use;
      accumulate = plain ? passes : passes + 1 + (passes != 2 ? 1 : 0);
      matrix_free_ = clock_ + passes;
      matrix_horizon_ = std::max(matrix_horizon_, clock_ + std::max(use, memory) + 2);
    }
    for (unsigned r = range.first; r < unsigned{range.first} + range.count; ++r) {
      Issued& row = issued_[r];
      if (is_matrix) {
        row.matrix = clock_;
        row.first = range.first;
        row.count = static_cast<std::uint8_t>(range.count);
        row.handed_on = passes == 2 ? 2 : 0;
        row.matrix_use = static_cast<std::uint8_t>(use);
        row.matrix_memory = static_cast<std::uint8_t>(memory);
        row.matrix_accumulate = static_cast<std::uint8_t>(accumulate);
        row.valu = 0;
      } else {
        row.valu = clock_;
        row.matrix = 0;
        row.transcendental = (instruction.form->flags & kTranscendental) != 0;
      }
    }
  }
  if (instruction.encoding == Encoding::kVop1 && (instruction.form->number == 89 || instruction.form->number == 90)) {
    issued_[instruction.sources[0].index].valu = clock_;
    issued_[instruction.sources[0].index].transcendental = false;
  }
  for (unsigned i = 0; i < instruction.num_scalar_writes; ++i) {
    const Range& range = instruction.scalar_writes[i];
    for (unsigned r = range.first; r < unsigned{range.first} + range.count && r < 128; ++r) scalar_issued_[r] = clock_;
  }
  note_rare(instruction, is_matrix);
}

void Wave::note_rare(const Instruction& instruction, bool is_matrix) {
  const unsigned hazards = instruction.hazards;
  if (clock_ < rare_horizon_ || (hazards & (kDotProduct | kPlacedResult)) != 0) {
    for (unsigned i = 0; i < instruction.num_vector_writes; ++i) {
      const Range& range = instruction.vector_writes[i];
      for (unsigned r = range.first; r < unsigned{range.first} + range.count; ++r) {
        rare_[r].dot = (hazards & kDotProduct) != 0 ? instruction.form : nullptr;
        rare_[r].dot_at = clock_;
        rare_[r].placed = (hazards & kPlacedResult) != 0 ? clock_ : 0;
      }
    }
  }
  if ((hazards & (kDotProduct | kPlacedResult)) != 0) rare_horizon_ = std::max(rare_horizon_, clock_ + 5);
  if ((hazards & kLaneMask) != 0) {
    lanes_masked_ = clock_;
    rare_horizon_ = std::max(rare_horizon_, clock_ + 7);
  }
  if (!is_matrix) return;
  if (is_fp64_product(instruction)) {
    fp64_product_ = clock_;
    rare_horizon_ = std::max(rare_horizon_, clock_ + 4);
    return;
  }
  const Operand& addend = instruction.sources[2];
  if (addend.kind != Operand::Kind::kVector || is_fp32_product(instruction)) return;
  const unsigned states = passes_of(instruction) - 1;
  for (unsigned r = addend.index; r < unsigned{addend.index} + addend.dwords; ++r) {
    rare_[r].addend = clock_;
    rare_[r].addend_states = static_cast<std::uint8_t>(states);
  }
  rare_horizon_ = std::max(rare_horizon_, clock_ + states + 2);
}

}  // namespace msa_ops::emulator::gfx950

// The frame of every vector operation: sources with their modifiers, lanes moved by DPP, parts chosen by SDWA, the
// function over 64 lanes, and the result's modifiers.
#include <algorithm>

#include "forms.hpp"
#include "numbers.hpp"
#include "wave.hpp"

namespace msa_ops::emulator::gfx950 {
namespace {

// Lane that each lane reads by DPP, or -1.
void dpp_lanes(unsigned control, std::array<std::int8_t, kLanes>& from) {
  for (int lane = 0; lane < 64; ++lane) {
    const int row = lane & ~15, in_row = lane & 15;
    int source = -1;
    const int amount = static_cast<int>(control & 15);
    if (control < 0x100) source = (lane & ~3) | static_cast<int>(control >> (2 * (lane & 3)) & 3);
    else if (control >= 0x101 && control <= 0x10f) source = in_row + amount < 16 ? lane + amount : -1;
    else if (control >= 0x111 && control <= 0x11f) source = in_row >= amount ? lane - amount : -1;
    else if (control >= 0x121 && control <= 0x12f) source = row | ((in_row - amount) & 15);
    else if (control == 0x130) source = lane < 63 ? lane + 1 : -1;
    else if (control == 0x134) source = (lane + 1) & 63;
    else if (control == 0x138) source = lane - 1;
    else if (control == 0x13c) source = (lane - 1) & 63;
    else if (control == 0x140) source = row | (15 - in_row);
    else if (control == 0x141) source = (lane & ~7) | (7 - (lane & 7));
    else if (control == 0x142) source = row - 1;
    else if (control == 0x143) source = lane >= 32 ? 31 : -1;
    else if (control >= 0x150 && control <= 0x15f) source = row | amount;
    else throw Violation{FaultKind::kIllegal, "a DPP control that does not exist"};
    from[static_cast<unsigned>(lane)] = static_cast<std::int8_t>(source);
  }
}

void broadcast(std::uint32_t* to, std::uint32_t value) { std::fill(to, to + kLanes, value); }

std::uint32_t select_part(std::uint32_t value, unsigned part, bool extend) {
  switch (part) {
    case 0: case 1: case 2: case 3: {
      const std::uint32_t byte = value >> (8 * part) & 0xff;
      return extend ? static_cast<std::uint32_t>(static_cast<std::int8_t>(byte)) : byte;
    }
    case 4: case 5: {
      const std::uint32_t word = value >> (16 * (part - 4)) & 0xffff;
      return extend ? static_cast<std::uint32_t>(static_cast<std::int16_t>(word)) : word;
    }
    default: return value;
  }
}

// The operand's rows with everything applied; `buffer` has two of them.
const std::uint32_t* fetch(const Wave& wave, const Instruction& instruction, const Operand& operand,
                           std::uint32_t* buffer, const std::array<std::int8_t, kLanes>* moved) {
  const std::uint32_t* from = buffer;
  if (operand.kind == Operand::Kind::kVector) {
    from = wave.row(operand.index);
    if (moved != nullptr) {
      for (unsigned word = 0; word < operand.dwords && word < 2; ++word) {
        for (unsigned lane = 0; lane < kLanes; ++lane) {
          const int source = (*moved)[lane];
          buffer[word * kLanes + lane] = source >= 0 ? from[word * kLanes + static_cast<unsigned>(source)] : 0;
        }
      }
      from = buffer;
    }
  } else if (operand.dwords == 2 && operand.type != Type::kMask) {
    const std::uint64_t value = wave.value64(operand);
    broadcast(buffer, static_cast<std::uint32_t>(value));
    broadcast(buffer + kLanes, static_cast<std::uint32_t>(value >> 32));
  } else {
    broadcast(buffer, wave.value32(operand));
  }
  const bool flush = wave.flushes_denormals() && (operand.type == Type::kF32 || operand.type == Type::kPkF32);
  if (!operand.modified && !flush) return from;

  switch (operand.type) {
    case Type::kPkF16:
    case Type::kPkB16:
      for (unsigned lane = 0; lane < kLanes; ++lane) {
        const std::uint32_t value = from[lane];
        std::uint32_t low = operand.high ? value >> 16 : value & 0xffff;
        std::uint32_t high = operand.high_for_high ? value >> 16 : value & 0xffff;
        if (operand.negate) low ^= 0x8000;
        if (operand.negate_high) high ^= 0x8000;
        buffer[lane] = low | high << 16;
      }
      return buffer;
    case Type::kPkF32: {
      alignas(64) std::uint32_t copy[2 * kLanes];
      std::copy(from, from + 2 * kLanes, copy);
      const std::uint32_t* low = operand.high ? copy + kLanes : copy;
      const std::uint32_t* high = operand.high_for_high ? copy + kLanes : copy;
      const std::uint32_t low_sign = operand.negate ? 0x80000000U : 0,
                          high_sign = operand.negate_high ? 0x80000000U : 0;
      for (unsigned lane = 0; lane < kLanes; ++lane) {
        buffer[lane] = low[lane] ^ low_sign;
        buffer[lane + kLanes] = high[lane] ^ high_sign;
      }
      if (flush) {
        for (unsigned i = 0; i < 2 * kLanes; ++i) buffer[i] = as_bits(flushed(as_float(buffer[i])));
      }
      return buffer;
    }
    case Type::kF64: {
      std::copy(from, from + kLanes, buffer);
      for (unsigned lane = 0; lane < kLanes; ++lane) {
        std::uint32_t high = from[lane + kLanes];
        if (operand.absolute) high &= 0x7fffffff;
        if (operand.negate) high ^= 0x80000000;
        buffer[lane + kLanes] = high;
      }
      return buffer;
    }
    default: break;
  }
  const bool half = operand.type == Type::kF16;
  const std::uint32_t sign = half ? 0x8000U : 0x80000000U;
  const unsigned shift = operand.high ? 16 : 0;
  const bool sixteen = half || operand.type == Type::kB16;
  const unsigned part = instruction.sdwa ? operand.select : 6;
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    std::uint32_t value = select_part(from[lane], part, operand.extend);
    if (sixteen && !instruction.sdwa) value = value >> shift & 0xffff;
    if (operand.absolute) value &= ~sign;
    if (operand.negate) value ^= sign;
    buffer[lane] = value;
  }
  if (flush) {
    for (unsigned lane = 0; lane < kLanes; ++lane) buffer[lane] = as_bits(flushed(as_float(buffer[lane])));
  }
  return buffer;
}

float modified_output(float value, unsigned modifier) {
  switch (modifier) {
    case 1: return value * 2;
    case 2: return value * 4;
    case 3: return value / 2;
    default: return value;
  }
}

float clamped(float value, bool nan_to_zero) {
  if (std::isnan(value)) return nan_to_zero ? 0.0F : value;
  return value <= 0 ? 0.0F : value > 1 ? 1.0F : value;
}

void finish_floats(const Wave& wave, const Instruction& instruction, std::uint32_t* d) {
  const Type type = instruction.form->destination;
  const bool zero = wave.dx10_clamp();
  if (type == Type::kF32 || type == Type::kPkF32) {
    const unsigned count = type == Type::kF32 ? kLanes : 2 * kLanes;
    if (instruction.output_modifier != 0 && wave.flushes_denormals() && !wave.ieee_mode()) {
      for (unsigned i = 0; i < count; ++i) d[i] = as_bits(modified_output(as_float(d[i]), instruction.output_modifier));
    }
    if (instruction.clamp) {
      for (unsigned i = 0; i < count; ++i) d[i] = as_bits(clamped(as_float(d[i]), zero));
    }
    if (wave.flushes_denormals()) {
      for (unsigned i = 0; i < count; ++i) d[i] = as_bits(flushed(as_float(d[i])));
    }
  } else if (instruction.clamp && type == Type::kF16) {
    for (unsigned i = 0; i < kLanes; ++i) d[i] = half_from(clamped(half_to(d[i]), zero));
  } else if (instruction.clamp && type == Type::kPkF16) {
    for (unsigned i = 0; i < kLanes; ++i) {
      d[i] = half_from(clamped(half_to(d[i] & 0xffff), zero)) |
             static_cast<std::uint32_t>(half_from(clamped(half_to(d[i] >> 16), zero))) << 16;
    }
  } else if (instruction.clamp && type == Type::kF64) {
    for (unsigned i = 0; i < kLanes; ++i) {
      const double value = as_double(d[i] | static_cast<std::uint64_t>(d[i + kLanes]) << 32);
      const std::uint64_t bits =
          as_bits(std::isnan(value) ? (zero ? 0.0 : value) : std::min(std::max(value, 0.0), 1.0));
      d[i] = static_cast<std::uint32_t>(bits);
      d[i + kLanes] = static_cast<std::uint32_t>(bits >> 32);
    }
  }
}

}  // namespace

void execute_vector(Wave& wave, const Instruction& instruction) {
  const Form& form = *instruction.form;
  Mask lanes = wave.exec();
  const bool gives_mask = instruction.mask_destination.kind == Operand::Kind::kScalar;
  if (lanes == 0) {
    if (gives_mask) wave.set_sgpr64(instruction.mask_destination.index, 0);
    return;
  }
  alignas(64) std::uint32_t buffers[3][2 * kLanes];
  alignas(64) std::uint32_t d[2 * kLanes];
  std::array<std::int8_t, kLanes> moved;
  if (instruction.dpp) {
    dpp_lanes(instruction.dpp_control, moved);
    for (unsigned lane = 0; lane < kLanes; ++lane) {
      const bool enabled =
          (instruction.dpp_row_mask >> (lane / 16) & 1) != 0 && (instruction.dpp_bank_mask >> (lane / 4 % 4) & 1) != 0;
      const bool valid = moved[lane] >= 0 && (wave.exec() >> moved[lane] & 1) != 0;
      if (!valid) moved[lane] = -1;
      if (!enabled || (!valid && !instruction.dpp_bound)) lanes &= ~(Mask{1} << lane);
    }
  }
  const auto source = [&](unsigned at) -> const std::uint32_t* {
    const Operand& operand = instruction.sources[at];
    if (operand.kind == Operand::Kind::kNone) return nullptr;
    return fetch(wave, instruction, operand, buffers[at], at == 0 && instruction.dpp ? &moved : nullptr);
  };
  VectorOperation operation{source(0), source(1), source(2), d, 0, 0, instruction, wave};
  const Operand& destination = instruction.destination;
  if ((form.flags & (kReadsDestination | kPartial)) != 0) {
    std::memcpy(d, wave.row(destination.index), sizeof(Row) * destination.dwords);
  }
  if (instruction.mask_source.kind != Operand::Kind::kNone) operation.carry = wave.value64(instruction.mask_source);
  form.function(operation);
  if (instruction.clamp || instruction.output_modifier != 0 || wave.flushes_denormals())
    finish_floats(wave, instruction, d);

  if (destination.kind == Operand::Kind::kVector) {
    unsigned written = 15;  // bytes
    if (instruction.sdwa && instruction.destination_select != 6) {
      const std::uint32_t* old = wave.row(destination.index);
      const unsigned part = instruction.destination_select;
      const unsigned shift = part < 4 ? 8 * part : 16 * (part - 4);
      const std::uint32_t mask = part < 4 ? 0xffU : 0xffffU;
      for (unsigned lane = 0; lane < kLanes; ++lane) {
        const std::uint32_t value = (d[lane] & mask) << shift;
        std::uint32_t rest = 0;
        if (instruction.destination_unused == 2) rest = old[lane] & ~(mask << shift);
        else if (instruction.destination_unused == 1 && (d[lane] & (mask + 1) >> 1) != 0) {
          rest = static_cast<std::uint32_t>(~((std::uint64_t{mask} << shift | ((std::uint64_t{1} << shift) - 1))));
        }
        d[lane] = value | rest;
      }
      if (instruction.destination_unused == 2) written = part < 4 ? 1U << part : 3U << 2 * (part - 4);
    } else if ((form.destination == Type::kF16 || form.destination == Type::kB16) && destination.high) {
      const std::uint32_t* old = wave.row(destination.index);
      for (unsigned lane = 0; lane < kLanes; ++lane) d[lane] = (old[lane] & 0xffff) | d[lane] << 16;
      written = 12;
    }
    if ((form.flags & kPartial) != 0) written = static_cast<unsigned>(operation.mask);
    for (unsigned word = 0; word < destination.dwords; ++word) {
      write_row(wave.row(destination.index + word), d + word * kLanes, lanes);
      if (written == 15) wave.define(destination.index + word, lanes);
      else wave.define_bytes(destination.index + word, written, lanes);
    }
  }
  if (gives_mask && form.destination != Type::kB32 && (form.flags & kPartial) == 0) {
    wave.set_sgpr64(instruction.mask_destination.index, operation.mask & lanes);
    if ((form.flags & kWritesExec) != 0) wave.set_sgpr64(kExec, operation.mask & lanes);
  } else if (gives_mask) {
    wave.set_sgpr64(instruction.mask_destination.index, operation.mask & lanes);
  }
}

}  // namespace msa_ops::emulator::gfx950

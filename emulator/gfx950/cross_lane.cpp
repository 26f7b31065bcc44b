// Operations between lanes and between register files.
#include <utility>

#include "forms.hpp"
#include "wave.hpp"

namespace msa_ops::emulator::gfx950 {
namespace {

constexpr Type N = Type::kNone, B = Type::kB32;

void require(const Wave& wave, unsigned row, Mask lanes) {
  const Mask missing = lanes & ~wave.defined({static_cast<std::uint16_t>(row), 1});
  if (missing != 0) wave.report_undefined(row, missing);
}

std::uint32_t of_lane(Wave& wave, const Operand& operand, unsigned lane) {
  if (operand.kind != Operand::Kind::kVector) return wave.value32(operand);
  require(wave, operand.index, Mask{1} << lane);
  return wave.row(operand.index)[lane];
}

void readfirstlane(Wave& wave, const Instruction& i) {
  const Mask lanes = wave.exec();
  wave.check_scalars(i);
  wave.sgpr(i.mask_destination.index) =
      of_lane(wave, i.sources[0], lanes != 0 ? static_cast<unsigned>(__builtin_ctzll(lanes)) : 0);
}

void readlane(Wave& wave, const Instruction& i) {
  wave.check_scalars(i);
  wave.sgpr(i.mask_destination.index) = of_lane(wave, i.sources[0], wave.value32(i.sources[1]) & 63);
}

void writelane(Wave& wave, const Instruction& i) {
  wave.check_scalars(i);
  const unsigned lane = wave.value32(i.sources[1]) & 63;
  wave.row(i.destination.index)[lane] = wave.value32(i.sources[0]);
  wave.define(i.destination.index, Mask{1} << lane);
}

// Lanes of the destination in the upper half of each `group` change places with those of the source in the lower half.
template <unsigned half>
void permlane_swap(Wave& wave, const Instruction& i) {
  const Mask lanes = wave.exec();
  require(wave, i.destination.index, lanes);
  require(wave, i.sources[0].index, lanes);
  std::uint32_t* const d = wave.row(i.destination.index);
  std::uint32_t* const s = wave.row(i.sources[0].index);
  constexpr Mask kLow = half == 32 ? 0xffffffffULL : 0x0000ffff0000ffffULL;
  if (const Mask odd = (lanes ^ lanes >> half) & kLow; odd != 0) {
    throw Violation{FaultKind::kIllegal, "a swap of lanes of which one is off", __builtin_ctzll(odd)};
  }
  for_lanes(lanes & kLow, [&](unsigned lane) { std::swap(s[lane], d[lane + half]); });
}

void swap(Wave& wave, const Instruction& i) {
  const Mask lanes = wave.exec();
  require(wave, i.destination.index, lanes);
  require(wave, i.sources[0].index, lanes);
  std::uint32_t* const d = wave.row(i.destination.index);
  std::uint32_t* const s = wave.row(i.sources[0].index);
  for_lanes(lanes, [&](unsigned lane) { std::swap(d[lane], s[lane]); });
}

void move(Wave& wave, const Instruction& i) {
  const Mask lanes = wave.exec();
  std::uint32_t* const d = wave.row(i.destination.index);
  if (i.sources[0].kind == Operand::Kind::kVector) {
    write_row(d, wave.row(i.sources[0].index), lanes);
  } else {
    const std::uint32_t value = wave.value32(i.sources[0]);
    for_lanes(lanes, [&](unsigned lane) { d[lane] = value; });
  }
  wave.define(i.destination.index, lanes);
}

Form form(Encoding encoding, unsigned number, const char* name, Type d, Type a, Type b, Handler handler,
          std::uint32_t flags) {
  return {encoding, static_cast<std::uint16_t>(number), name, d, {a, b, N}, handler, nullptr, flags};
}

}  // namespace

std::vector<Form> cross_lane_forms() {
  return {
      form(Encoding::kVop1, 2, "v_readfirstlane_b32", B, B, N, readfirstlane, kWritesMask | kSelfChecked),
      form(Encoding::kVop3, 649, "v_readlane_b32", B, B, B, readlane, kWritesMask | kSelfChecked),
      form(Encoding::kVop3, 650, "v_writelane_b32", B, B, B, writelane, kSelfChecked),
      form(Encoding::kVop1, 81, "v_swap_b32", B, B, N, swap, kSelfChecked),
      form(Encoding::kVop1, 82, "v_accvgpr_mov_b32", B, B, N, move, 0),
      form(Encoding::kVop1, 89, "v_permlane16_swap_b32", B, B, N, permlane_swap<16>, kSelfChecked),
      form(Encoding::kVop1, 90, "v_permlane32_swap_b32", B, B, N, permlane_swap<32>, kSelfChecked),
      form(Encoding::kMfma, 88, "v_accvgpr_read_b32", B, B, N, move, 0),
      form(Encoding::kMfma, 89, "v_accvgpr_write_b32", B, B, N, move, 0),
  };
}

}  // namespace msa_ops::emulator::gfx950

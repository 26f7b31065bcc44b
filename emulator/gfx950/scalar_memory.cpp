// Loads into scalar registers.
#include "address.hpp"
#include "forms.hpp"
#include "wave.hpp"

namespace msa_ops::emulator::gfx950 {
namespace {

std::int64_t offset_of(const Wave& wave, const Instruction& i) {
  return i.immediate + (i.sources[1].kind == Operand::Kind::kScalar ? std::int64_t{wave.value32(i.sources[1])} : 0);
}

void load(Wave& wave, const Instruction& i) {
  const std::uint64_t address =
      (wave.value64(i.sources[0]) + static_cast<std::uint64_t>(offset_of(wave, i))) & ~std::uint64_t{3};
  const unsigned bytes = 4U * i.destination.dwords;
  const std::byte* const place = wave.block().global().range(address, bytes, 1, false, -1);
  wave.coherence().load_scalars(wave.group(), place, bytes);
  std::memcpy(&wave.sgpr(i.destination.index), place, bytes);
  if (address - wave.kernel().kernarg() >= wave.kernel().kernarg_bytes()) wave.count_read(bytes);
  wave.issue_scalar({i.destination.index, i.destination.dwords});
}

void buffer_load(Wave& wave, const Instruction& i) {
  const BufferResource buffer(wave, i.sources[0].index);
  const auto offset = static_cast<std::uint64_t>(offset_of(wave, i)) & ~std::uint64_t{3};
  const std::uint64_t size =
      buffer.stride != 0 ? std::uint64_t{buffer.stride} * buffer.num_records : buffer.num_records;
  for (unsigned word = 0; word < i.destination.dwords; ++word) {
    std::uint32_t value = 0;
    if (offset + 4 * word + 4 <= size) {
      const std::byte* const place = wave.block().global().range(buffer.base + offset + 4 * word, 4, 1, false, -1);
      wave.coherence().load_scalars(wave.group(), place, 4);
      std::memcpy(&value, place, 4);
      wave.count_read(4);
    } else {
      ++wave.out_of_range_lanes;
    }
    wave.sgpr(i.destination.index + word) = value;
  }
  wave.issue_scalar({i.destination.index, i.destination.dwords});
}

void time(Wave& wave, const Instruction& i) {
  wave.set_value64(i.destination, wave.clock() * 4);
  wave.issue_scalar({i.destination.index, 2});
}

Form form(unsigned number, const char* name, Type d, Type base, Handler handler) {
  return {Encoding::kSmem,
          static_cast<std::uint16_t>(number),
          name,
          d,
          {base, Type::kNone, Type::kNone},
          handler,
          nullptr,
          0};
}

}  // namespace

std::vector<Form> scalar_memory_forms() {
  return {
      form(0, "s_load_dword", Type::kB32, Type::kB64, load),
      form(1, "s_load_dwordx2", Type::kB64, Type::kB64, load),
      form(2, "s_load_dwordx4", Type::kB128, Type::kB64, load),
      form(3, "s_load_dwordx8", Type::kB256, Type::kB64, load),
      form(4, "s_load_dwordx16", Type::kB512, Type::kB64, load),
      form(8, "s_buffer_load_dword", Type::kB32, Type::kB128, buffer_load),
      form(9, "s_buffer_load_dwordx2", Type::kB64, Type::kB128, buffer_load),
      form(10, "s_buffer_load_dwordx4", Type::kB128, Type::kB128, buffer_load),
      form(11, "s_buffer_load_dwordx8", Type::kB256, Type::kB128, buffer_load),
      form(12, "s_buffer_load_dwordx16", Type::kB512, Type::kB128, buffer_load),
      form(32, "s_dcache_inv", Type::kNone, Type::kNone,
           [](Wave& wave, const Instruction&) { wave.coherence().invalidate_scalars(wave.group()); }),
      form(33, "s_dcache_wb", Type::kNone, Type::kNone, [](Wave&, const Instruction&) {}),
      form(36, "s_memtime", Type::kB64, Type::kNone, time),
      form(37, "s_memrealtime", Type::kB64, Type::kNone, time),
  };
}

}  // namespace msa_ops::emulator::gfx950

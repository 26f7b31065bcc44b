// Loads and stores.
#include <type_traits>

#include "lanes.hpp"
#include "opcodes.hpp"

namespace msa_ops::emulator::ptx {
namespace {

std::uint64_t address_of(PtxWarp& warp, const Instruction& i, const Operand& base, unsigned lane, bool shared) {
  const std::uint64_t address = warp.value(base, lane) + i.offset;
  return shared ? address & 0xffffffffU : address;  // shared addresses are of 32 bits, whatever register holds them
}

// `T` is the type of an element: its sign decides how it fills a wider register.
template <typename T>
void scatter(PtxWarp& warp, const Instruction& i, unsigned lane, const std::byte* from) {
  for (unsigned element = 0; element < i.form->count; ++element) {
    T value;
    std::memcpy(&value, from + element * sizeof(T), sizeof(T));
    warp.set_value(i.operands[element], lane, static_cast<std::uint64_t>(value));
  }
}

template <typename T, bool shared>
void load(PtxWarp& warp, const Instruction& i, Mask lanes) {
  const std::size_t bytes = sizeof(T) * i.form->count;
  const Operand& base = i.operands[i.form->count];
  // Addresses first: a destination may be the address register.
  std::uint64_t addresses[kLanes];
  for_lanes(lanes, [&](unsigned lane) { addresses[lane] = address_of(warp, i, base, lane, shared); });
  for_lanes(lanes, [&](unsigned lane) {
    const int who = static_cast<int>(lane);
    const std::byte* from = shared ? warp.block().shared().read(addresses[lane], bytes, who)
                                   : warp.block().global().at(addresses[lane], bytes, false, who);
    scatter<T>(warp, i, lane, from);
  });
  if (!shared) warp.count_read(bytes * static_cast<unsigned>(__builtin_popcount(lanes)));
}

template <typename T>
void load_parameter(PtxWarp& warp, const Instruction& i, Mask lanes) {
  const auto* from = reinterpret_cast<const std::byte*>(warp.kernel().parameter_bytes().data() + i.offset);
  for_lanes(lanes, [&](unsigned lane) { scatter<T>(warp, i, lane, from); });
}

template <typename T, bool shared>
void store(PtxWarp& warp, const Instruction& i, Mask lanes) {
  const std::size_t bytes = sizeof(T) * i.form->count;
  for_lanes(lanes, [&](unsigned lane) {
    const int who = static_cast<int>(lane);
    const std::uint64_t address = address_of(warp, i, i.operands[0], lane, shared);
    std::byte* to = shared ? warp.block().shared().write(address, bytes, who)
                           : warp.block().global().at(address, bytes, true, who);
    for (unsigned element = 0; element < i.form->count; ++element) {
      const auto value = static_cast<T>(warp.value(i.operands[1 + element], lane));
      std::memcpy(to + element * sizeof(T), &value, sizeof(T));
    }
  });
  if (!shared) warp.count_written(bytes * static_cast<unsigned>(__builtin_popcount(lanes)));
}

template <typename T>
void add_type(Forms& forms, const std::string& type) {
  for (const unsigned count : {1U, 2U, 4U}) {
    if (count * sizeof(T) > 16) continue;
    const std::string name = (count == 1 ? "." : ".v" + std::to_string(count) + ".") + type;
    const auto add = [&](const std::string& opcode, const char* operands, Handler handler, MemorySpace space) {
      forms.push_back({opcode + name, operands, handler, space, sizeof(T), static_cast<std::uint8_t>(count)});
    };
    add("ld.param", "=v A", load_parameter<T>, MemorySpace::kParameter);
    add("ld.global", "=v A", load<T, false>, MemorySpace::kGlobal);
    add("ld.shared", "=v A", load<T, true>, MemorySpace::kShared);
    add("st.global", "A v", store<T, false>, MemorySpace::kGlobal);
    add("st.shared", "A v", store<T, true>, MemorySpace::kShared);
  }
}

}  // namespace

void add_memory_forms(Forms& forms) {
  add_type<std::uint8_t>(forms, "b8");
  add_type<std::uint8_t>(forms, "u8");
  add_type<std::int8_t>(forms, "s8");
  add_type<std::uint16_t>(forms, "b16");
  add_type<std::uint16_t>(forms, "u16");
  add_type<std::int16_t>(forms, "s16");
  add_type<std::uint32_t>(forms, "b32");
  add_type<std::uint32_t>(forms, "u32");
  add_type<std::int32_t>(forms, "s32");
  add_type<std::uint32_t>(forms, "f32");
  add_type<std::uint64_t>(forms, "b64");
  add_type<std::uint64_t>(forms, "u64");
  add_type<std::int64_t>(forms, "s64");
  add_type<std::uint64_t>(forms, "f64");
}

}  // namespace msa_ops::emulator::ptx

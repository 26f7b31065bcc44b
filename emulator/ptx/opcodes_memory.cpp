// Loads and stores.
#include <optional>
#include <string>

#include "addresses.hpp"
#include "lanes.hpp"
#include "opcodes.hpp"

namespace msa_ops::emulator::ptx {
namespace {

// `T` is the type of an element: its sign decides how it fills a wider register.
template <typename T>
void scatter(PtxWarp& warp, const Instruction& i, unsigned lane, const std::byte* from) {
  for (unsigned element = 0; element < i.form->count; ++element) {
    T value;
    std::memcpy(&value, from + element * sizeof(T), sizeof(T));
    warp.set_value(i.operands[element], lane, static_cast<std::uint64_t>(value));
  }
}

bool is_global(MemorySpace space, std::uint64_t address) {
  return space == MemorySpace::kGeneric ? space_of(address) == MemorySpace::kGlobal : space == MemorySpace::kGlobal;
}

// Which elements of a read of shared memory have no value.
void leave_unwritten(PtxWarp& warp, const Instruction& i, std::uint64_t address, unsigned lane) {
  std::uint64_t place = address;
  if (i.form->memory == MemorySpace::kGeneric) space_of(place);
  SharedMemory& shared = warp.block().holder(place, static_cast<int>(lane)).shared();
  for (unsigned element = 0; element < i.form->count; ++element) {
    const std::uint64_t at = place + element * i.form->element;
    if (const auto missing = shared.first_unwritten(at, i.form->element)) {
      warp.leave_undefined(i.operands[element], Mask{1} << lane, *missing);
    }
  }
}

// One request of the warp, in the spaces that have them.
void count_request(PtxWarp& warp, const std::uint64_t* addresses, std::size_t bytes, MemorySpace space, Mask lanes) {
  if (space == MemorySpace::kShared) warp.count_shared_request(addresses, bytes, lanes);
  if (space == MemorySpace::kGlobal) warp.count_global_request(addresses, lanes);
}

template <typename T, MemorySpace space>
void load(PtxWarp& warp, const Instruction& i, Mask lanes) {
  const std::size_t bytes = sizeof(T) * i.form->count;
  const Operand& base = i.operands[i.form->count];
  // Addresses first: a destination may be the address register.
  std::uint64_t addresses[kLanes];
  for_lanes(lanes, [&](unsigned lane) { addresses[lane] = address_of(warp, base, lane, i.offset, space); });
  for_lanes(lanes, [&](unsigned lane) {
    bool written = true;
    scatter<T>(warp, i, lane, access<Use::kRead>(warp, i, addresses[lane], bytes, space, lane, &written));
    if (!written) leave_unwritten(warp, i, addresses[lane], lane);
    if (is_global(space, addresses[lane])) warp.count_read(bytes);
  });
  count_request(warp, addresses, bytes, space, lanes);
}

template <typename T>
void load_parameter(PtxWarp& warp, const Instruction& i, Mask lanes) {
  const auto* from = reinterpret_cast<const std::byte*>(warp.kernel().parameter_bytes().data() + i.offset);
  for_lanes(lanes, [&](unsigned lane) { scatter<T>(warp, i, lane, from); });
}

// A register without a value may be stored in shared memory only: there its bytes have none either.
void want_place_for_undefined(PtxWarp& warp, const Instruction& i, std::uint64_t address, unsigned lane) {
  const MemorySpace space = i.form->memory == MemorySpace::kGeneric ? space_of(address) : i.form->memory;
  if (space == MemorySpace::kShared || space == MemorySpace::kCluster) return;
  for (unsigned element = 0; element < i.form->count; ++element) {
    warp.want_defined(i.operands[1 + element], Mask{1} << lane);
  }
}

void store_undefined(PtxWarp& warp, const Instruction& i, std::uint64_t address, unsigned lane) {
  if (i.form->memory == MemorySpace::kGeneric && space_of(address) != MemorySpace::kCluster) return;
  for (unsigned element = 0; element < i.form->count; ++element) {
    if ((warp.undefined(i.operands[1 + element]) >> lane & 1) == 0) continue;
    warp.block().holder(address, static_cast<int>(lane)).shared().unwrite(address + element * i.form->element,
                                                                        i.form->element);
  }
}

template <typename T, MemorySpace space>
void store(PtxWarp& warp, const Instruction& i, Mask lanes) {
  const std::size_t bytes = sizeof(T) * i.form->count;
  const bool some_undefined = warp.any_undefined();
  if (some_undefined) warp.want_defined(i.operands[0], lanes);
  std::uint64_t addresses[kLanes];
  for_lanes(lanes, [&](unsigned lane) {
    const std::uint64_t address = address_of(warp, i.operands[0], lane, i.offset, space);
    addresses[lane] = address;
    if (some_undefined) want_place_for_undefined(warp, i, address, lane);
    std::byte* to = access<Use::kWrite>(warp, i, address, bytes, space, lane);
    for (unsigned element = 0; element < i.form->count; ++element) {
      const auto value = static_cast<T>(warp.value(i.operands[1 + element], lane));
      std::memcpy(to + element * sizeof(T), &value, sizeof(T));
    }
    if (some_undefined) store_undefined(warp, i, address, lane);
    if (is_global(space, address)) warp.count_written(bytes);
  });
  count_request(warp, addresses, bytes, space, lanes);
}

template <typename T>
void add_type(Forms& forms, const std::string& type) {
  for (const unsigned count : {1U, 2U, 4U, 8U}) {
    const std::size_t bytes = count * sizeof(T);
    if (count == 8 ? bytes != 32 : bytes > 32 || (bytes > 16 && count != 4)) continue;
    const std::string name = (count == 1 ? "." : ".v" + std::to_string(count) + ".") + type;
    const auto add = [&](const std::string& opcode, const char* operands, Handler handler, MemorySpace space) {
      if (bytes == 32 && space != MemorySpace::kGlobal) return;
      forms.push_back({opcode + name, operands, handler, space, sizeof(T), static_cast<std::uint8_t>(count)});
      if (opcode.compare(0, 2, "st") == 0) forms.back().undefined = Form::Undefined::kHandled;
    };
    add("ld.param", "=v A", load_parameter<T>, MemorySpace::kParameter);
    add("ld.global", "=v A 8?", load<T, MemorySpace::kGlobal>, MemorySpace::kGlobal);
    add("ld.const", "=v A", load<T, MemorySpace::kConstant>, MemorySpace::kConstant);
    add("ld.shared", "=v A", load<T, MemorySpace::kShared>, MemorySpace::kShared);
    add("ld.shared::cluster", "=v A", load<T, MemorySpace::kCluster>, MemorySpace::kCluster);
    add("ld.local", "=v A", load<T, MemorySpace::kLocal>, MemorySpace::kLocal);
    add("ld", "=v A 8?", load<T, MemorySpace::kGeneric>, MemorySpace::kGeneric);
    add("st.global", "A v 8?", store<T, MemorySpace::kGlobal>, MemorySpace::kGlobal);
    add("st.shared", "A v", store<T, MemorySpace::kShared>, MemorySpace::kShared);
    add("st.shared::cluster", "A v", store<T, MemorySpace::kCluster>, MemorySpace::kCluster);
    add("st.local", "A v", store<T, MemorySpace::kLocal>, MemorySpace::kLocal);
    add("st", "A v 8?", store<T, MemorySpace::kGeneric>, MemorySpace::kGeneric);
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

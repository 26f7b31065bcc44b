// Loads and stores.
#include <optional>
#include <string>

#include "addresses.hpp"
#include "lanes.hpp"
#include "opcodes.hpp"

namespace msa_ops::emulator::ptx {
namespace {

// The registers of a vector's elements from the bytes of each lane. `T` is the type of an element: its sign decides how
// it fills a wider register.
template <typename T, typename Register>
void fill(Register* out, const std::byte* const* sources, std::size_t place, Mask lanes) {
  for_lanes(lanes, [&](unsigned lane) {
    T value;
    std::memcpy(&value, sources[lane] + place, sizeof(T));
    out[lane] = static_cast<Register>(value);
  });
}
template <typename T>
void scatter(PtxWarp& warp, const Instruction& i, const std::byte* const* sources, Mask lanes) {
  for (unsigned element = 0; element < i.form->count; ++element) {
    const Operand& to = i.operands[element];
    const std::size_t place = element * sizeof(T);
    switch (to.width) {
      case 1: fill<T>(warp.out<std::uint8_t>(to), sources, place, lanes); break;
      case 2: fill<T>(warp.out<std::uint16_t>(to), sources, place, lanes); break;
      case 4: fill<T>(warp.out<std::uint32_t>(to), sources, place, lanes); break;
      default: fill<T>(warp.out<std::uint64_t>(to), sources, place, lanes);
    }
  }
}

template <typename T, typename Register>
bool copy_out(const Register* in, std::byte* const* targets, std::size_t place, Mask lanes) {
  bool changed = false;
  for_lanes(lanes, [&](unsigned lane) {
    const auto value = static_cast<T>(in[lane]);
    T old;
    std::memcpy(&old, targets[lane] + place, sizeof(T));
    if (old == value) return;
    std::memcpy(targets[lane] + place, &value, sizeof(T));
    changed = true;
  });
  return changed;
}
// Whether memory holds other bytes now.
template <typename T>
bool gather(PtxWarp& warp, const Instruction& i, std::byte* const* targets, Mask lanes) {
  bool changed = false;
  for (unsigned element = 0; element < i.form->count; ++element) {
    const Operand& from = i.operands[1 + element];
    const std::size_t place = element * sizeof(T);
    switch (from.width) {
      case 1: changed |= copy_out<T>(warp.row<std::uint8_t>(from), targets, place, lanes); break;
      case 2: changed |= copy_out<T>(warp.row<std::uint16_t>(from), targets, place, lanes); break;
      case 4: changed |= copy_out<T>(warp.row<std::uint32_t>(from), targets, place, lanes); break;
      default: changed |= copy_out<T>(warp.row<std::uint64_t>(from), targets, place, lanes);
    }
  }
  return changed;
}

// Lanes whose accesses follow each other in memory are one access. Calls function(address, bytes) for each of these and
// puts the lanes' places into `places`. False if one of them is not as it should be: then the lanes are to be looked at
// one by one, for the right one to be named. With `shares` lanes may also want the same place.
template <bool shares, typename Byte, typename Function>
bool access_runs(const std::uint64_t* addresses, std::size_t bytes, Mask lanes, Byte** places, Function function) {
  try {
    for (Mask rest = lanes; rest != 0;) {
      const auto first = static_cast<unsigned>(__builtin_ctz(rest));
      const std::uint64_t start = addresses[first];
      std::uint64_t last = start;
      unsigned end = first + 1;
      for (; end < kLanes && (rest >> end & 1) != 0; ++end) {
        if (addresses[end] != last + bytes && !(shares && addresses[end] == last)) break;
        last = addresses[end];
      }
      Byte* const at = function(start, static_cast<std::size_t>(last - start) + bytes);
      for (unsigned lane = first; lane < end; ++lane) places[lane] = at + (addresses[lane] - start);
      rest = end == kLanes ? 0 : rest & ~((Mask{1} << end) - 1);
    }
    return true;
  } catch (const Violation&) {
    return false;
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
      warp.leave_undefined(i.operands[element], Mask{1} << lane, PtxWarp::Lack::kShared, *missing);
    }
  }
}

template <MemorySpace space>
void find_addresses(PtxWarp& warp, const Operand& base, std::uint64_t displacement, Mask lanes, std::uint64_t* out) {
  constexpr bool narrow =
      space == MemorySpace::kShared || space == MemorySpace::kCluster || space == MemorySpace::kLocal;
  if (base.width == 8) {
    const auto* values = warp.row<std::uint64_t>(base);
    for_lanes(lanes, [&](unsigned lane) { out[lane] = values[lane] + displacement; });
  } else if (base.width == 4) {
    const auto* values = warp.row<std::uint32_t>(base);
    for_lanes(lanes, [&](unsigned lane) { out[lane] = values[lane] + displacement; });
  } else {
    for_lanes(lanes, [&](unsigned lane) { out[lane] = warp.value(base, lane) + displacement; });
  }
  if (narrow) {
    for_lanes(lanes, [&](unsigned lane) { out[lane] &= 0xffffffffU; });
  }
  if (space == MemorySpace::kConstant) {
    for_lanes(lanes, [&](unsigned lane) { out[lane] = warp.kernel().constant_address(out[lane]); });
  }
}

// One request of the warp; a generic one is one for each space that its lanes are in.
void count_request(PtxWarp& warp, const std::uint64_t* addresses, std::size_t bytes, MemorySpace space, Mask lanes,
                   bool write) {
  using Space = PtxWarp::Space;
  const auto count = [&](Mask some) { return bytes * static_cast<unsigned>(__builtin_popcount(some)); };
  const auto of_cluster = [&](const std::uint64_t* places, Mask some) {
    Mask own = 0;
    for_lanes(some, [&](unsigned lane) {
      own |= static_cast<Mask>(places[lane] >> warp.kernel().rank_shift() == warp.block().rank()) << lane;
    });
    if (own != 0) warp.count_shared_request(places, bytes, own);
    warp.count_bytes(Space::kShared, write, count(own));
    warp.count_bytes(Space::kCluster, write, count(some & ~own));
  };
  switch (space) {
    case MemorySpace::kGlobal: return warp.count_global_request(addresses, lanes);
    case MemorySpace::kShared:
      warp.count_bytes(Space::kShared, write, count(lanes));
      return warp.count_shared_request(addresses, bytes, lanes);
    case MemorySpace::kCluster: return of_cluster(addresses, lanes);
    case MemorySpace::kLocal: return warp.count_bytes(Space::kLocal, write, count(lanes));
    case MemorySpace::kGeneric: {
      std::uint64_t places[kLanes];
      Mask global = 0, cluster = 0, local = 0;
      for_lanes(lanes, [&](unsigned lane) {
        places[lane] = addresses[lane];
        const MemorySpace found = space_of(places[lane]);
        (found == MemorySpace::kGlobal ? global : found == MemorySpace::kCluster ? cluster : local) |= Mask{1} << lane;
      });
      if (global != 0) warp.count_global_request(places, global);
      if (cluster != 0) of_cluster(places, cluster);
      return warp.count_bytes(Space::kLocal, write, count(local));
    }
    default: return;
  }
}

// Of weak accesses in one space, most of which are of neighbours.
template <MemorySpace space>
bool read_runs(PtxWarp& warp, const Instruction& i, const std::uint64_t* addresses, std::size_t bytes, Mask lanes,
               const std::byte** sources) {
  if constexpr (space == MemorySpace::kShared) {
    if (i.order != Order::kDefault) return false;
    SharedMemory& shared = warp.block().shared();
    return access_runs<true>(addresses, bytes, lanes, sources, [&](std::uint64_t address, std::size_t all) {
      return shared.read_run(address, all, bytes);
    });
  }
  return false;
}

template <typename T, MemorySpace space>
void load(PtxWarp& warp, const Instruction& i, Mask lanes) {
  const std::size_t bytes = sizeof(T) * i.form->count;
  const Operand& base = i.operands[i.form->count];
  // Addresses first: a destination may be the address register.
  std::uint64_t addresses[kLanes];
  find_addresses<space>(warp, base, i.offset, lanes, addresses);
  const std::byte* sources[kLanes] = {};
  Mask unwritten = 0;
  if (!read_runs<space>(warp, i, addresses, bytes, lanes, sources)) {
    for_lanes(lanes, [&](unsigned lane) {
      bool written = true;
      sources[lane] = access<Use::kRead>(warp, i, addresses[lane], bytes, space, lane, &written);
      unwritten |= static_cast<Mask>(!written) << lane;
      if (is_global(space, addresses[lane])) warp.count_read(bytes);
    });
  }
  scatter<T>(warp, i, sources, lanes);
  for_lanes(unwritten & lanes, [&](unsigned lane) { leave_unwritten(warp, i, addresses[lane], lane); });
  count_request(warp, addresses, bytes, space, lanes, false);
}

template <typename T>
void load_parameter(PtxWarp& warp, const Instruction& i, Mask lanes) {
  const std::byte* sources[kLanes] = {};
  if (i.operands.size() > i.form->count) {  // from an address that `mov` made of a parameter's name
    const auto& all = warp.kernel().parameter_bytes();
    const auto start = reinterpret_cast<std::uint64_t>(all.data());
    const std::size_t bytes = sizeof(T) * i.form->count;
    std::uint64_t addresses[kLanes];
    find_addresses<MemorySpace::kParameter>(warp, i.operands[i.form->count], i.offset, lanes, addresses);
    for_lanes(lanes, [&](unsigned lane) {
      const std::uint64_t offset = addresses[lane] - start;
      if (offset > all.count || bytes > all.count - offset) {
        throw Violation{FaultKind::kOutOfBounds, "a read outside of the kernel's parameters", static_cast<int>(lane),
                        addresses[lane]};
      }
      if (addresses[lane] % bytes != 0) {
        throw Violation{FaultKind::kMisaligned, "an address that is no multiple of " + std::to_string(bytes),
                        static_cast<int>(lane), addresses[lane]};
      }
      sources[lane] = reinterpret_cast<const std::byte*>(addresses[lane]);
    });
    return scatter<T>(warp, i, sources, lanes);
  }
  const auto* from = reinterpret_cast<const std::byte*>(warp.kernel().parameter_bytes().data() + i.offset);
  for (const std::byte*& source : sources) source = from;
  scatter<T>(warp, i, sources, lanes);
}

// A register without a value may be stored in shared memory only: there its bytes have none either.
void want_place_for_undefined(PtxWarp& warp, const Instruction& i, std::uint64_t address, unsigned lane) {
  const MemorySpace space = i.form->memory == MemorySpace::kGeneric ? space_of(address) : i.form->memory;
  if (space == MemorySpace::kShared || space == MemorySpace::kCluster) return;
  for (unsigned element = 0; element < i.form->count; ++element) {
    const Operand& value = i.operands[1 + element];
    if ((warp.undefined_low(value, i.form->element) >> lane & 1) != 0) warp.want_defined(value, Mask{1} << lane);
  }
}

void store_undefined(PtxWarp& warp, const Instruction& i, std::uint64_t address, unsigned lane) {
  if (i.form->memory == MemorySpace::kGeneric && space_of(address) != MemorySpace::kCluster) return;
  for (unsigned element = 0; element < i.form->count; ++element) {
    if ((warp.undefined_low(i.operands[1 + element], i.form->element) >> lane & 1) == 0) continue;
    warp.block().holder(address, static_cast<int>(lane)).shared().unwrite(address + element * i.form->element,
                                                                        i.form->element);
  }
}

template <MemorySpace space>
bool write_runs(PtxWarp& warp, const Instruction& i, const std::uint64_t* addresses, std::size_t bytes, Mask lanes,
                std::byte** targets) {
  if constexpr (space == MemorySpace::kShared) {
    if (i.order != Order::kDefault) return false;
    SharedMemory& shared = warp.block().shared();
    return access_runs<false>(addresses, bytes, lanes, targets, [&](std::uint64_t address, std::size_t all) {
      return shared.write_run(address, all, bytes);
    });
  }
  return false;
}

template <typename T, MemorySpace space>
void store(PtxWarp& warp, const Instruction& i, Mask lanes) {
  const std::size_t bytes = sizeof(T) * i.form->count;
  const bool some_undefined = warp.any_undefined();
  if (some_undefined) warp.want_defined(i.operands[0], lanes);
  if (!i.late_reads.empty()) warp.end_late_reads(lanes, &i.late_reads);
  std::uint64_t addresses[kLanes];
  find_addresses<space>(warp, i.operands[0], i.offset, lanes, addresses);
  std::byte* targets[kLanes] = {};
  if (some_undefined || !write_runs<space>(warp, i, addresses, bytes, lanes, targets)) {
    for_lanes(lanes, [&](unsigned lane) {
      if (some_undefined) want_place_for_undefined(warp, i, addresses[lane], lane);
      targets[lane] = access<Use::kWrite>(warp, i, addresses[lane], bytes, space, lane);
      if (some_undefined) store_undefined(warp, i, addresses[lane], lane);
      if (is_global(space, addresses[lane])) warp.count_written(bytes);
    });
  }
  if (gather<T>(warp, i, targets, lanes)) warp.note_change();
  count_request(warp, addresses, bytes, space, lanes, true);
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
      if (opcode.compare(0, 2, "st") == 0) {
        forms.back().undefined = Form::Undefined::kHandled;
        forms.back().reports_changes = true;
      }
    };
    add("ld.param", "=v A", load_parameter<T>, MemorySpace::kParameter);
    for (const bool stores : {false, true}) {  // of functions
      const Handler handler = stores ? store<T, MemorySpace::kLocal> : load<T, MemorySpace::kLocal>;
      add(stores ? "st.param" : "ld.param", stores ? "A v" : "=v A", handler, MemorySpace::kLocal);
      if (bytes != 32) forms.back().opcode += " of call";
    }
    add("ld.global", "=v A 8?", load<T, MemorySpace::kGlobal>, MemorySpace::kGlobal);
    add("ld.const", "=v A", load<T, MemorySpace::kConstant>, MemorySpace::kConstant);
    add("ld.shared", "=v A", load<T, MemorySpace::kShared>, MemorySpace::kShared);
    add("ld.shared::cluster", "=v A", load<T, MemorySpace::kCluster>, MemorySpace::kCluster);
    add("ld.local", "=v A", load<T, MemorySpace::kLocal>, MemorySpace::kLocal);
    add("ld", "=v A 8?", load<T, MemorySpace::kGeneric>, MemorySpace::kGeneric);
    if (bytes != 32) add("ldu.global", "=v A", load<T, MemorySpace::kGlobal>, MemorySpace::kGlobal);
    add("ldu", "=v A", load<T, MemorySpace::kGeneric>, MemorySpace::kGeneric);
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

// Loads, stores and atomic operations of vector memory: flat, global and scratch addresses, and buffers.
#include <algorithm>

#include "address.hpp"
#include "atomic.hpp"
#include "forms.hpp"
#include "numbers.hpp"
#include "wave.hpp"

namespace msa_ops::emulator::gfx950 {
namespace {

constexpr Type N = Type::kNone, B = Type::kB32;
using Kind = Wave::Outstanding::Kind;

// How a load fills its register.
enum class Fill {
  kDwords,
  kZero8,
  kSigned8,
  kZero16,
  kSigned16,
  kLow8,
  kLowSigned8,
  kLow16,
  kHigh8,
  kHighSigned8,
  kHigh16
};

constexpr unsigned bytes_of(Fill fill, unsigned dwords) {
  switch (fill) {
    case Fill::kDwords: return 4 * dwords;
    case Fill::kZero16: case Fill::kSigned16: case Fill::kLow16: case Fill::kHigh16: return 2;
    default: return 1;
  }
}
std::uint32_t filled(Fill fill, std::uint32_t data, std::uint32_t old) {
  switch (fill) {
    case Fill::kSigned8: return static_cast<std::uint32_t>(static_cast<std::int8_t>(data));
    case Fill::kSigned16: return static_cast<std::uint32_t>(static_cast<std::int16_t>(data));
    case Fill::kLow8: case Fill::kLow16: return (old & 0xffff0000) | data;
    case Fill::kLowSigned8:
      return (old & 0xffff0000) | (static_cast<std::uint32_t>(static_cast<std::int8_t>(data)) & 0xffff);
    case Fill::kHigh8: case Fill::kHigh16: return (old & 0xffff) | data << 16;
    case Fill::kHighSigned8: return (old & 0xffff) | static_cast<std::uint32_t>(static_cast<std::int8_t>(data)) << 16;
    default: return data;
  }
}

// ---- addresses
struct Target {
  std::byte* place;   // null: outside the buffer
  unsigned words;     // that are inside, of those asked for; bytes of smaller accesses count as one
};

// Place of a lane's access. What a buffer does not hold is skipped, dword by dword.
template <typename Access>
void each_target(Wave& wave, const Instruction& i, unsigned bytes, bool write, const Access& to_do) {
  const Mask lanes = wave.exec();
  const auto access = [&](unsigned lane, std::byte* place, unsigned inside) {
    if (inside > 0) wave.count_sectors(reinterpret_cast<std::uint64_t>(place), inside);
    to_do(lane, place, inside);
  };
  if (i.encoding == Encoding::kMubuf) {
    const BufferResource buffer(wave, i.mask_source.index);
    const std::uint32_t* const first =
        i.sources[0].kind == Operand::Kind::kVector ? wave.row(i.sources[0].index) : nullptr;
    const std::uint64_t scalar = wave.value32(i.sources[2]);
    for_lanes(lanes, [&](unsigned lane) {
      const std::uint32_t index = i.index_enable ? first[lane] : 0;
      const std::uint32_t voffset = i.offset_enable ? first[lane + (i.index_enable ? kLanes : 0)] : 0;
      const std::uint64_t offset =
          std::uint64_t{voffset} + static_cast<std::uint32_t>(i.immediate) + std::uint64_t{index} * buffer.stride;
      const std::uint64_t from_base = offset + scalar;
      const bool whole = buffer.holds(from_base, index, i.index_enable, bytes);
      if (whole) {
        access(lane, wave.block().global().range(buffer.base + from_base, bytes, 1, write, static_cast<int>(lane)),
               bytes);
        return;
      }
      ++wave.out_of_range_lanes;
      unsigned inside = 0;
      while (inside + 4 <= bytes && buffer.holds(from_base + inside, index, i.index_enable, 4)) inside += 4;
      access(lane,
             inside > 0 ? wave.block().global().range(buffer.base + from_base, inside, 1, write, static_cast<int>(lane))
                        : nullptr,
             inside);
    });
    wave.end_request();
    return;
  }
  const auto offset = static_cast<std::uint64_t>(static_cast<std::int64_t>(i.immediate));
  if (i.encoding == Encoding::kScratch) {
    const std::uint32_t* const row =
        i.sources[0].kind == Operand::Kind::kVector ? wave.row(i.sources[0].index) : nullptr;
    const std::uint32_t scalar = i.mask_source.kind == Operand::Kind::kScalar ? wave.sgpr(i.mask_source.index) : 0;
    wave.count_space(Wave::Space::kScratch, write, lanes, bytes);
    for_lanes(lanes, [&](unsigned lane) {
      const std::uint32_t at = (row != nullptr ? row[lane] : 0) + scalar + static_cast<std::uint32_t>(offset);
      to_do(lane, wave.scratch(lane, at, bytes, write), bytes);
    });
    return;
  }
  const std::uint32_t* const row = wave.row(i.sources[0].index);
  if (i.mask_source.kind == Operand::Kind::kScalar) {
    const std::uint64_t base = wave.sgpr64(i.mask_source.index) + offset;
    for_lanes(lanes, [&](unsigned lane) {
      access(lane, wave.block().global().range(base + row[lane], bytes, 1, write, static_cast<int>(lane)), bytes);
    });
  } else {
    for_lanes(lanes, [&](unsigned lane) {
      const std::uint64_t address = (row[lane] | static_cast<std::uint64_t>(row[lane + kLanes]) << 32) + offset;
      access(lane, wave.block().global().range(address, bytes, 1, write, static_cast<int>(lane)), bytes);
    });
  }
  wave.end_request();
}

// An operation on flat addresses is counted twice and may come back at any time.
void issue_flat_too(Wave& wave, const Instruction& i) {
  if (i.encoding == Encoding::kFlat) wave.issue_lds(Kind::kControl);
}

std::uint64_t mixed(std::uint64_t digest, std::uint64_t value) {
  digest = (digest ^ value) * 0x9e3779b97f4a7c15ULL;
  return digest ^ digest >> 29;
}

template <Fill fill>
void load_to_lds(Wave& wave, const Instruction& i) {
  const unsigned dwords = fill == Fill::kDwords ? dwords_of(i.form->destination) : 1;
  const unsigned bytes = bytes_of(fill, dwords);
  const std::uint32_t base = wave.sgpr(kM0) + static_cast<std::uint32_t>(i.immediate);
  wave.require_scalar(kM0);
  Wave::Outstanding& operation = wave.issue_vector(Kind::kLoadToLds);
  wave.note_change();
  Coherence::Access access = wave.begin_access();
  std::uint64_t count = 0;
  Mask loaded = 0;
  each_target(wave, i, bytes, false, [&](unsigned lane, const std::byte* place, unsigned inside) {
    const std::uint32_t to = base + lane * 4 * dwords;
    std::uint32_t data[4] = {0, 0, 0, 0};
    if (place != nullptr) {
      std::memcpy(data, place, inside);
      if (wave.coherence().load(access, place, inside, data) != 0) {
        throw Violation{access.unseen.kind(), "the load to the LDS " + access.unseen.text(), static_cast<int>(lane),
                        reinterpret_cast<std::uintptr_t>(place)};
      }
    }
    if (fill != Fill::kDwords) data[0] = filled(fill, data[0], 0);
    count += inside;
    // Loading again what is there changes nothing that anyone could see: loops do it in their last iterations.
    const Lds::Repeated repeated = wave.lds().repeats(to, data, 4 * dwords, wave.index());
    if (repeated == Lds::Repeated::kThere) return;
    operation.lds_address[lane] = to;
    loaded |= Mask{1} << lane;
    if (repeated == Lds::Repeated::kComing) return;
    std::byte* const out = wave.lds().access(Lds::Access::kLoadedWrite, to, 4 * dwords, 4, wave.index(), wave.epoch(),
                                             i.address, static_cast<int>(lane));
    std::memcpy(out, data, std::size_t{4} * dwords);
    wave.lds().put_in_flight(true, to, 4 * dwords, wave.index(), i.address);
  });
  wave.count_space(Wave::Space::kLds, true, wave.exec(), 4 * dwords);
  operation.in_flight = true;
  operation.lanes = loaded;
  operation.lds_bytes = 4 * dwords;
  wave.count_read(count);
}

template <Fill fill>
void load(Wave& wave, const Instruction& i) {
  if (i.to_lds) {
    load_to_lds<fill>(wave, i);
    return;
  }
  const Mask lanes = wave.exec();
  const unsigned dwords = i.destination.dwords;
  const unsigned bytes = bytes_of(fill, dwords);
  alignas(16) std::uint32_t loaded[kLanes][4];
  std::uint64_t count = 0;
  const bool is_global = i.encoding != Encoding::kScratch;
  Coherence::Access memory = wave.begin_access();
  std::array<Mask, 4> unseen{};
  bool any_unseen = false;
  std::uint64_t seen = 1;
  each_target(wave, i, bytes, false, [&](unsigned lane, const std::byte* place, unsigned inside) {
    std::uint32_t* const data = loaded[lane];
    if (fill == Fill::kDwords) {
      if (inside == 16) std::memcpy(data, place, 16);
      else {
        std::memset(data, 0, 16);
        if (place != nullptr) std::memcpy(data, place, inside);
      }
    } else {
      data[0] = 0;
      if (place != nullptr) std::memcpy(data, place, bytes);
    }
    if (is_global && place != nullptr) {
      if (const unsigned bad = wave.coherence().load(memory, place, inside, data); bad != 0) {
        any_unseen = true;
        for (unsigned word = 0; word < 4; ++word) unseen[word] |= Mask{bad >> word & 1} << lane;
      }
    }
    count += inside;
    if (memory.scope == Coherence::Scope::kWorkgroup) return;
    seen = mixed(seen, reinterpret_cast<std::uint64_t>(place));
    for (unsigned word = 0; word < dwords; ++word) seen = mixed(seen, data[word]);
  });
  if (is_global && memory.scope != Coherence::Scope::kWorkgroup) wave.note_polling(seen);
  wave.count_read(count);
  constexpr bool keeps = fill >= Fill::kLow8;
  for (unsigned word = 0; word < dwords; ++word) {
    std::uint32_t* const row = wave.row(i.destination.index + word);
    for_lanes(lanes, [&](unsigned lane) {
      row[lane] = fill == Fill::kDwords ? loaded[lane][word] : filled(fill, loaded[lane][0], keeps ? row[lane] : 0);
    });
  }
  Wave::Outstanding& operation = wave.issue_vector(Kind::kLoad);
  wave.await(operation, {i.destination.index, i.destination.dwords}, lanes);
  if (any_unseen) wave.note_unseen(operation, unseen, memory.unseen);
  issue_flat_too(wave, i);
}

// A store of dwords, or of the low part of (the upper half of) a register.
template <unsigned small_bytes>
void store(Wave& wave, const Instruction& i) {
  const unsigned dwords = i.sources[1].dwords;
  const unsigned bytes = small_bytes != 0 ? small_bytes : 4 * dwords;
  const std::uint32_t* const data = wave.row(i.sources[1].index);
  const unsigned shift = i.sources[1].high ? 16 : 0;
  const bool is_global = i.encoding != Encoding::kScratch;
  Coherence::Access memory = wave.begin_access();
  std::uint64_t count = 0;
  bool changed = false;
  each_target(wave, i, bytes, true, [&](unsigned lane, std::byte* place, unsigned inside) {
    if (place == nullptr) return;
    std::uint32_t words[4];
    for (unsigned word = 0; word < dwords; ++word) words[word] = data[word * kLanes + lane];
    if (small_bytes != 0) words[0] >>= shift;
    if (is_global) wave.coherence().store(memory, place, inside);
    changed = changed || std::memcmp(place, words, inside) != 0;
    std::memcpy(place, words, inside);
    count += inside;
  });
  if (changed && is_global) wave.note_change();
  wave.count_written(count);
  Wave::Outstanding& operation = wave.issue_vector(Kind::kStore);
  if (is_global) wave.finish_access(memory, operation);
  issue_flat_too(wave, i);
}

template <typename T, T (*function)(T, T)>
void atomic(Wave& wave, const Instruction& i) {
  const Mask lanes = wave.exec();
  const std::uint32_t* const data = wave.row(i.sources[1].index);
  alignas(16) std::uint32_t before[kLanes][2] = {};
  const bool returns = i.destination.kind == Operand::Kind::kVector;
  Coherence::Access memory = wave.begin_access(true);
  std::uint64_t count = 0, seen = 1;
  bool changed = false;
  each_target(wave, i, sizeof(T), true, [&](unsigned lane, std::byte* place, unsigned inside) {
    if (place == nullptr || inside < sizeof(T)) return;
    if (reinterpret_cast<std::uintptr_t>(place) % sizeof(T) != 0) {
      throw Violation{FaultKind::kMisaligned, "atomic operation on " + std::to_string(sizeof(T)) + " bytes",
                      static_cast<int>(lane), reinterpret_cast<std::uintptr_t>(place)};
    }
    wave.coherence().modify(memory, place, sizeof(T), static_cast<int>(lane));
    T operand;
    std::uint32_t words[2] = {data[lane], sizeof(T) == 8 ? data[lane + kLanes] : 0};
    std::memcpy(&operand, words, sizeof(T));
    const T old = exchange_memory<T>(place, [&](T value) { return function(value, operand); });
    std::memcpy(before[lane], &old, sizeof(T));
    changed = changed || std::memcmp(place, &old, sizeof(T)) != 0;
    seen = mixed(mixed(seen, reinterpret_cast<std::uint64_t>(place)), static_cast<std::uint64_t>(old));
    count += sizeof(T);
  });
  wave.count_read(count);
  wave.count_written(count);
  if (changed) wave.note_change();
  else wave.note_polling(seen);
  Wave::Outstanding& operation = wave.issue_vector(returns ? Kind::kLoad : Kind::kStore);
  wave.finish_access(memory, operation);
  if (returns) {
    for (unsigned word = 0; word < i.destination.dwords; ++word) {
      std::uint32_t* const row = wave.row(i.destination.index + word);
      for_lanes(lanes, [&](unsigned lane) { row[lane] = before[lane][word]; });
    }
    wave.await(operation, {i.destination.index, i.destination.dwords}, lanes);
  }
  issue_flat_too(wave, i);
}

// Data first, then what memory must hold.
template <typename T>
void compare_and_swap(Wave& wave, const Instruction& i) {
  constexpr unsigned words = sizeof(T) / 4;
  const Mask lanes = wave.exec();
  const std::uint32_t* const data = wave.row(i.sources[1].index);
  alignas(16) std::uint32_t before[kLanes][2] = {};
  Coherence::Access memory = wave.begin_access(true);
  std::uint64_t count = 0, seen = 1;
  bool changed = false;
  each_target(wave, i, sizeof(T), true, [&](unsigned lane, std::byte* place, unsigned inside) {
    if (place == nullptr || inside < sizeof(T)) return;
    wave.coherence().modify(memory, place, sizeof(T), static_cast<int>(lane));
    std::uint32_t parts[4];
    for (unsigned word = 0; word < 2 * words; ++word) parts[word] = data[word * kLanes + lane];
    T value, expected;
    std::memcpy(&value, parts, sizeof(T));
    std::memcpy(&expected, parts + words, sizeof(T));
    const T old = exchange_memory<T>(place, [&](T now) { return now == expected ? value : now; });
    std::memcpy(before[lane], &old, sizeof(T));
    changed = changed || std::memcmp(place, &old, sizeof(T)) != 0;
    seen = mixed(mixed(seen, reinterpret_cast<std::uint64_t>(place)), static_cast<std::uint64_t>(old));
    count += sizeof(T);
  });
  wave.count_read(count);
  wave.count_written(count);
  if (changed) wave.note_change();
  else wave.note_polling(seen);
  const bool returns = i.destination.kind == Operand::Kind::kVector;
  Wave::Outstanding& operation = wave.issue_vector(returns ? Kind::kLoad : Kind::kStore);
  wave.finish_access(memory, operation);
  if (returns) {
    for (unsigned word = 0; word < i.destination.dwords; ++word) {
      std::uint32_t* const row = wave.row(i.destination.index + word);
      for_lanes(lanes, [&](unsigned lane) { row[lane] = before[lane][word]; });
    }
    wave.await(operation, {i.destination.index, i.destination.dwords}, lanes);
  }
  issue_flat_too(wave, i);
}

Coherence::Scope scope_of(const Instruction& i) {
  return !i.sc1 ? Coherence::Scope::kWorkgroup : i.sc0 ? Coherence::Scope::kSystem : Coherence::Scope::kAgent;
}
void write_back(Wave& wave, const Instruction& i) {
  wave.issue_vector(Kind::kControl).store = wave.coherence().write_back(wave.group(), scope_of(i), &wave);
}
void invalidate(Wave& wave, const Instruction& i) {
  wave.coherence().invalidate(wave.group(), scope_of(i), i.sc0);
  wave.issue_vector(Kind::kControl);
}

struct Loads {
  unsigned number;
  const char* name;
  Type type;
  Handler handler;
  std::uint32_t flags;
};

}  // namespace

std::vector<Form> memory_forms() {
  std::vector<Form> made;
  struct Segment {
    Encoding encoding;
    const char* prefix;
  };
  static std::vector<std::unique_ptr<std::string>> names;
  const auto add = [&](const Segment& segment, unsigned number, const char* name, Type destination, Type data,
                       Handler handler, std::uint32_t flags = 0) {
    names.push_back(std::make_unique<std::string>(std::string(segment.prefix) + name));
    made.push_back({segment.encoding, static_cast<std::uint16_t>(number), names.back()->c_str(), destination,
                    {B, data, N}, handler, nullptr, flags});
  };
  static const Segment kSegments[] = {{Encoding::kFlat, "flat_"},
                                      {Encoding::kGlobal, "global_"},
                                      {Encoding::kScratch, "scratch_"},
                                      {Encoding::kMubuf, "buffer_"}};
  for (const Segment& segment : kSegments) {
    add(segment, 16, "load_ubyte", B, N, load<Fill::kZero8>);
    add(segment, 17, "load_sbyte", B, N, load<Fill::kSigned8>);
    add(segment, 18, "load_ushort", B, N, load<Fill::kZero16>);
    add(segment, 19, "load_sshort", B, N, load<Fill::kSigned16>);
    add(segment, 20, "load_dword", B, N, load<Fill::kDwords>);
    add(segment, 21, "load_dwordx2", Type::kB64, N, load<Fill::kDwords>);
    add(segment, 22, "load_dwordx3", Type::kB96, N, load<Fill::kDwords>);
    add(segment, 23, "load_dwordx4", Type::kB128, N, load<Fill::kDwords>);
    add(segment, 24, "store_byte", N, Type::kB8, store<1>);
    add(segment, 25, "store_byte_d16_hi", N, Type::kB16, store<1>, kHighHalf);
    add(segment, 26, "store_short", N, Type::kB16, store<2>);
    add(segment, 27, "store_short_d16_hi", N, Type::kB16, store<2>, kHighHalf);
    add(segment, 28, "store_dword", N, B, store<0>);
    add(segment, 29, "store_dwordx2", N, Type::kB64, store<0>);
    add(segment, 30, "store_dwordx3", N, Type::kB96, store<0>);
    add(segment, 31, "store_dwordx4", N, Type::kB128, store<0>);
    add(segment, 32, "load_ubyte_d16", B, N, load<Fill::kLow8>);
    add(segment, 33, "load_ubyte_d16_hi", B, N, load<Fill::kHigh8>);
    add(segment, 34, "load_sbyte_d16", B, N, load<Fill::kLowSigned8>);
    add(segment, 35, "load_sbyte_d16_hi", B, N, load<Fill::kHighSigned8>);
    add(segment, 36, "load_short_d16", B, N, load<Fill::kLow16>);
    add(segment, 37, "load_short_d16_hi", B, N, load<Fill::kHigh16>);
    if (segment.encoding == Encoding::kGlobal) {
      add(segment, 38, "load_lds_ubyte", B, N, load<Fill::kZero8>, kToLds);
      add(segment, 39, "load_lds_sbyte", B, N, load<Fill::kSigned8>, kToLds);
      add(segment, 40, "load_lds_ushort", B, N, load<Fill::kZero16>, kToLds);
      add(segment, 41, "load_lds_sshort", B, N, load<Fill::kSigned16>, kToLds);
      add(segment, 42, "load_lds_dword", B, N, load<Fill::kDwords>, kToLds);
      add(segment, 125, "load_lds_dwordx4", Type::kB128, N, load<Fill::kDwords>, kToLds);
      add(segment, 126, "load_lds_dwordx3", Type::kB96, N, load<Fill::kDwords>, kToLds);
    }
    if (segment.encoding == Encoding::kMubuf) {
      add(segment, 40, "wbl2", N, N, write_back, kCacheControl);
      add(segment, 41, "inv", N, N, invalidate, kCacheControl);
    }
    if (segment.encoding == Encoding::kScratch) continue;
    using U = std::uint32_t;
    using L = std::uint64_t;
    constexpr Type W = Type::kB64;
    add(segment, 64, "atomic_swap", B, B, atomic<U, swapped<U>>);
    add(segment, 65, "atomic_cmpswap", B, W, compare_and_swap<U>);
    add(segment, 66, "atomic_add", B, B, atomic<U, added<U>>);
    add(segment, 67, "atomic_sub", B, B, atomic<U, subtracted<U>>);
    add(segment, 68, "atomic_smin", B, B, atomic<U, signed_min<U>>);
    add(segment, 69, "atomic_umin", B, B, atomic<U, unsigned_min<U>>);
    add(segment, 70, "atomic_smax", B, B, atomic<U, signed_max<U>>);
    add(segment, 71, "atomic_umax", B, B, atomic<U, unsigned_max<U>>);
    add(segment, 72, "atomic_and", B, B, atomic<U, anded<U>>);
    add(segment, 73, "atomic_or", B, B, atomic<U, ored<U>>);
    add(segment, 74, "atomic_xor", B, B, atomic<U, xored<U>>);
    add(segment, 75, "atomic_inc", B, B, atomic<U, incremented<U>>);
    add(segment, 76, "atomic_dec", B, B, atomic<U, decremented<U>>);
    add(segment, 77, "atomic_add_f32", B, B, atomic<U, added_f32>);
    add(segment, 78, "atomic_pk_add_f16", B, B, atomic<U, added_f16x2>);
    add(segment, 79, "atomic_add_f64", W, W, atomic<L, added_f64>);
    add(segment, 80, "atomic_min_f64", W, W, atomic<L, min_f64>);
    add(segment, 81, "atomic_max_f64", W, W, atomic<L, max_f64>);
    add(segment, 82, "atomic_pk_add_bf16", B, B, atomic<U, added_bf16x2>);
    add(segment, 96, "atomic_swap_x2", W, W, atomic<L, swapped<L>>);
    add(segment, 97, "atomic_cmpswap_x2", W, Type::kB128, compare_and_swap<L>);
    add(segment, 98, "atomic_add_x2", W, W, atomic<L, added<L>>);
    add(segment, 99, "atomic_sub_x2", W, W, atomic<L, subtracted<L>>);
    add(segment, 100, "atomic_smin_x2", W, W, atomic<L, signed_min<L>>);
    add(segment, 101, "atomic_umin_x2", W, W, atomic<L, unsigned_min<L>>);
    add(segment, 102, "atomic_smax_x2", W, W, atomic<L, signed_max<L>>);
    add(segment, 103, "atomic_umax_x2", W, W, atomic<L, unsigned_max<L>>);
    add(segment, 104, "atomic_and_x2", W, W, atomic<L, anded<L>>);
    add(segment, 105, "atomic_or_x2", W, W, atomic<L, ored<L>>);
    add(segment, 106, "atomic_xor_x2", W, W, atomic<L, xored<L>>);
    add(segment, 107, "atomic_inc_x2", W, W, atomic<L, incremented<L>>);
    add(segment, 108, "atomic_dec_x2", W, W, atomic<L, decremented<L>>);
  }
  return made;
}

}  // namespace msa_ops::emulator::gfx950

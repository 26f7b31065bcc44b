// Operations of the LDS, and the exchanges of lanes that it makes.
#include <algorithm>

#include "atomic.hpp"
#include "forms.hpp"
#include "wave.hpp"

namespace msa_ops::emulator::gfx950 {
namespace {

constexpr Type N = Type::kNone, B = Type::kB32, W = Type::kB64;
using Kind = Wave::Outstanding::Kind;
constexpr unsigned kBanks = 64;  // of 4 bytes

// Cycles that an access takes: as many lanes at once as fill all banks, in order; then each bank gives one of the
// different rows that are asked of it in a cycle.
std::uint64_t cycles_of(Mask lanes, const std::uint32_t* addresses, unsigned bytes) {
  const unsigned granule = bytes <= 4 ? 4 : bytes <= 8 ? 8 : 16;
  const unsigned shift = granule == 4 ? 2 : granule == 8 ? 3 : 4;
  const unsigned columns = kBanks * 4 / granule, together = columns;
  std::uint64_t cycles = 0;
  for (unsigned first = 0; first < kLanes; first += together) {
    std::uint32_t seen[kBanks][kBanks];
    std::uint8_t count[kBanks] = {};
    unsigned most = 0;
    for (unsigned lane = first; lane < first + together; ++lane) {
      if ((lanes >> lane & 1) == 0) continue;
      const std::uint32_t row = addresses[lane] >> shift;
      const unsigned column = row % columns;
      unsigned known = 0;
      while (known < count[column] && seen[column][known] != row) ++known;
      if (known == count[column]) {
        seen[column][known] = row;
        most = std::max(most, unsigned{++count[column]});
      }
    }
    cycles += most;
  }
  return cycles;
}

// What an access does: an atomic operation reads and writes.
enum class Moves { kReads, kWrites, kBoth };

void count(Wave& wave, Mask lanes, const std::uint32_t* addresses, unsigned bytes, Moves moves) {
  if (moves != Moves::kWrites) wave.count_space(Wave::Space::kLds, false, lanes, bytes);
  if (moves != Moves::kReads) wave.count_space(Wave::Space::kLds, true, lanes, bytes);
  const unsigned granule = bytes <= 4 ? 4 : bytes <= 8 ? 8 : 16;
  const std::uint64_t cycles = cycles_of(lanes, addresses, bytes);
  wave.lds_cycles += cycles;
  const std::uint64_t least = (kLanes * granule + kBanks * 4 - 1) / (kBanks * 4);
  if (cycles > least) wave.lds_conflict_cycles += cycles - least;
}

// The lane's access was outside: nothing of it is there to be ordered.
void outside(Wave::Outstanding& operation, unsigned lane) {
  operation.outside = true;
  operation.lds_address[lane] = 0;
}

void note_lacking(Wave::Outstanding& operation, std::uint8_t lacking, Mask lanes) {
  operation.undefined |= lanes;
  if ((lacking & Lds::kRaced) != 0) operation.raced |= lanes;
}

// Wide reads bring operands of matrix instructions, and are not followed to their use.
Lds::Access read_kind(Wave& wave, const Instruction& i, unsigned bytes) {
  if (wave.lds().is_single_wave()) return Lds::Access::kRead;
  if (i.polls) {
    wave.note_polling(1);  // until somebody writes to the LDS
    return Lds::Access::kPoll;
  }
  return bytes <= 8 ? Lds::Access::kFollowedRead : Lds::Access::kRead;
}

void finish_read(Wave& wave, const Instruction& i, Wave::Outstanding& operation, Lds::Access kind) {
  if (operation.raced != 0) wave.note_race(*wave.lds().take_race());
  wave.await(operation, {i.destination.index, i.destination.dwords}, operation.lanes);
  if (kind == Lds::Access::kFollowedRead) wave.follow(operation);
}

unsigned alignment_of(unsigned bytes) { return bytes >= 4 ? 4 : bytes; }

template <unsigned bytes, bool is_signed, int part>
void read(Wave& wave, const Instruction& i) {  // part: 0 whole register, 1 low half, 2 high half
  constexpr unsigned words = (bytes + 3) / 4;
  const Mask lanes = wave.exec();
  const std::uint32_t* const address = wave.row(i.sources[0].index);
  Wave::Outstanding& operation = wave.issue_lds(Kind::kLdsRead);
  alignas(16) std::uint32_t data[kLanes][4];
  const Lds::Access kind = read_kind(wave, i, bytes);
  for_lanes(lanes, [&](unsigned lane) {
    const std::uint32_t at = address[lane] + static_cast<std::uint32_t>(i.immediate);
    operation.lds_address[lane] = at;
    std::uint8_t lacking = 0;
    const std::byte* place = wave.lds().access(kind, at, bytes, alignment_of(bytes), wave.index(), wave.epoch(),
                                               i.address, static_cast<int>(lane), nullptr, &lacking);
    if (lacking != 0) note_lacking(operation, lacking, Mask{1} << lane);
    if (bytes < 4 || place == nullptr) std::memset(data[lane], 0, 16);
    if (place != nullptr) std::memcpy(data[lane], place, bytes);
    else outside(operation, lane);
  });
  for (unsigned word = 0; word < words; ++word) {
    std::uint32_t* const row = wave.row(i.destination.index + word);
    for_lanes(lanes, [&](unsigned lane) {
      std::uint32_t value = data[lane][word];
      if (is_signed)
        value = bytes == 1 ? static_cast<std::uint32_t>(static_cast<std::int8_t>(value))
                           : static_cast<std::uint32_t>(static_cast<std::int16_t>(value));
      if (part == 1) value = (row[lane] & 0xffff0000) | (value & 0xffff);
      if (part == 2) value = (row[lane] & 0xffff) | value << 16;
      row[lane] = value;
    });
  }
  operation.lds_bytes = bytes;
  operation.lanes = lanes;
  finish_read(wave, i, operation, kind);
  count(wave, lanes, operation.lds_address, bytes, Moves::kReads);
}

// Lanes whose data has no value: what they write has none either.
Mask lacking(const Wave& wave, const Operand& data, unsigned bytes, Mask lanes) {
  const Mask missing = lanes & ~wave.defined({data.index, static_cast<std::uint16_t>((bytes + 3) / 4)});
  if (missing == 0 || bytes >= 4) return missing;
  return wave.bytes_defined(data.index, ((1U << bytes) - 1) << (data.high ? 2 : 0), lanes) ? 0 : missing;
}

template <unsigned bytes>
void write(Wave& wave, const Instruction& i) {
  constexpr unsigned words = (bytes + 3) / 4;
  const Mask lanes = wave.exec();
  const std::uint32_t* const address = wave.row(i.sources[0].index);
  const std::uint32_t* const data = wave.row(i.sources[1].index);
  const unsigned shift = i.sources[1].high ? 16 : 0;
  Wave::Outstanding& operation = wave.issue_lds(Kind::kLdsWrite);
  wave.note_change();
  const Mask missing = lacking(wave, i.sources[1], bytes, lanes);
  for_lanes(lanes, [&](unsigned lane) {
    const std::uint32_t at = address[lane] + static_cast<std::uint32_t>(i.immediate);
    operation.lds_address[lane] = at;
    std::uint32_t parts[4];
    for (unsigned word = 0; word < words; ++word) parts[word] = data[word * kLanes + lane];
    if (bytes < 4) parts[0] >>= shift;
    std::byte* place = wave.lds().access(Lds::Access::kWrite, at, bytes, alignment_of(bytes), wave.index(),
                                         wave.epoch(), i.address, static_cast<int>(lane), parts);
    std::memcpy(place, parts, bytes);
    if ((missing >> lane & 1) != 0) wave.lds().forget(at, bytes);
  });
  operation.lds_bytes = bytes;
  operation.lanes = lanes;
  count(wave, lanes, operation.lds_address, bytes, Moves::kWrites);
}

// Two accesses of an instruction; their offsets are in units of the access, or of 64 of them.
template <unsigned bytes, bool is_write, unsigned unit>
void two(Wave& wave, const Instruction& i) {
  constexpr unsigned words = bytes / 4;
  const Mask lanes = wave.exec();
  const std::uint32_t* const address = wave.row(i.sources[0].index);
  Wave::Outstanding& operation = wave.issue_lds(is_write ? Kind::kLdsWrite : Kind::kLdsRead);
  alignas(16) std::uint32_t loaded[kLanes][4];
  const Lds::Access kind = is_write ? Lds::Access::kWrite : read_kind(wave, i, bytes);
  for (unsigned second = 0; second < 2; ++second) {
    const std::uint32_t offset = (second != 0 ? i.offset1 : i.offset0) * bytes * unit;
    std::uint32_t* const places = second != 0 ? operation.lds_address_b : operation.lds_address;
    const Mask missing = is_write ? lacking(wave, i.sources[1 + second], bytes, lanes) : 0;
    for_lanes(lanes, [&](unsigned lane) {
      const std::uint32_t at = address[lane] + offset;
      places[lane] = at;
      std::uint8_t lacking_here = 0;
      std::uint32_t parts[2] = {};
      if (is_write) {
        const std::uint32_t* const data = wave.row(i.sources[1 + second].index);
        for (unsigned word = 0; word < words; ++word) parts[word] = data[word * kLanes + lane];
      }
      std::byte* place = wave.lds().access(kind, at, bytes, 4, wave.index(), wave.epoch(), i.address,
                                           static_cast<int>(lane), is_write ? parts : nullptr,
                                           is_write ? nullptr : &lacking_here);
      if (lacking_here != 0) note_lacking(operation, lacking_here, Mask{1} << lane);
      if (is_write) {
        std::memcpy(place, parts, bytes);
        if ((missing >> lane & 1) != 0) wave.lds().forget(at, bytes);
      } else {
        if (place != nullptr) std::memcpy(&loaded[lane][second * words], place, bytes);
        else std::memset(&loaded[lane][second * words], 0, bytes), outside(operation, lane);
      }
    });
    count(wave, lanes, places, bytes, is_write ? Moves::kWrites : Moves::kReads);
  }
  operation.lds_bytes = operation.lds_bytes_b = bytes;
  operation.lanes = lanes;
  if (is_write) {
    wave.note_change();
    return;
  }
  for (unsigned word = 0; word < 2 * words; ++word) {
    std::uint32_t* const row = wave.row(i.destination.index + word);
    for_lanes(lanes, [&](unsigned lane) { row[lane] = loaded[lane][word]; });
  }
  finish_read(wave, i, operation, kind);
}

template <typename T, T (*function)(T, T)>
void atomic(Wave& wave, const Instruction& i) {
  const Mask lanes = wave.exec();
  const std::uint32_t* const address = wave.row(i.sources[0].index);
  const std::uint32_t* const data = wave.row(i.sources[1].index);
  const bool returns = i.destination.kind == Operand::Kind::kVector;
  Wave::Outstanding& operation = wave.issue_lds(Kind::kLdsWrite);
  wave.note_change();
  constexpr bool swaps = function == &swapped<T>;
  const Lds::Access kind = !returns ? Lds::Access::kAtomic : swaps ? Lds::Access::kExchange : Lds::Access::kAtomicReturn;
  std::uint32_t before[kLanes][2];
  for_lanes(lanes, [&](unsigned lane) {
    const std::uint32_t at = address[lane] + static_cast<std::uint32_t>(i.immediate);
    operation.lds_address[lane] = at;
    std::byte* place = wave.lds().access(kind, at, sizeof(T), sizeof(T), wave.index(), wave.epoch(), i.address,
                                         static_cast<int>(lane));
    T old, operand;
    const std::uint32_t parts[2] = {data[lane], sizeof(T) == 8 ? data[lane + kLanes] : 0};
    std::memcpy(&operand, parts, sizeof(T));
    std::memcpy(&old, place, sizeof(T));
    const T value = function(old, operand);
    std::memcpy(place, &value, sizeof(T));
    std::memcpy(before[lane], &old, sizeof(T));
  });
  operation.lds_bytes = sizeof(T);
  operation.lanes = lanes;
  count(wave, lanes, operation.lds_address, sizeof(T), Moves::kBoth);
  if (!returns) return;
  for (unsigned word = 0; word < i.destination.dwords; ++word) {
    std::uint32_t* const row = wave.row(i.destination.index + word);
    for_lanes(lanes, [&](unsigned lane) { row[lane] = before[lane][word]; });
  }
  wave.await(operation, {i.destination.index, i.destination.dwords}, lanes);
}

template <typename T>
void compare_store(Wave& wave, const Instruction& i) {  // the first datum is compared, the second stored
  const Mask lanes = wave.exec();
  const std::uint32_t* const address = wave.row(i.sources[0].index);
  const bool returns = i.destination.kind == Operand::Kind::kVector;
  Wave::Outstanding& operation = wave.issue_lds(Kind::kLdsWrite);
  wave.note_change();
  std::uint32_t before[kLanes][2];
  for_lanes(lanes, [&](unsigned lane) {
    const std::uint32_t at = address[lane] + static_cast<std::uint32_t>(i.immediate);
    operation.lds_address[lane] = at;
    std::byte* place = wave.lds().access(returns ? Lds::Access::kExchange : Lds::Access::kAtomic, at, sizeof(T),
                                         sizeof(T), wave.index(), wave.epoch(), i.address, static_cast<int>(lane));
    const auto operand = [&](unsigned source) {
      const std::uint32_t* const data = wave.row(i.sources[source].index);
      const std::uint32_t parts[2] = {data[lane], sizeof(T) == 8 ? data[lane + kLanes] : 0};
      T value;
      std::memcpy(&value, parts, sizeof(T));
      return value;
    };
    T old;
    std::memcpy(&old, place, sizeof(T));
    const T value = old == operand(1) ? operand(2) : old;
    std::memcpy(place, &value, sizeof(T));
    std::memcpy(before[lane], &old, sizeof(T));
  });
  operation.lds_bytes = sizeof(T);
  operation.lanes = lanes;
  count(wave, lanes, operation.lds_address, sizeof(T), Moves::kBoth);
  if (!returns) return;
  for (unsigned word = 0; word < i.destination.dwords; ++word) {
    std::uint32_t* const row = wave.row(i.destination.index + word);
    for_lanes(lanes, [&](unsigned lane) { row[lane] = before[lane][word]; });
  }
  wave.await(operation, {i.destination.index, i.destination.dwords}, lanes);
}

// Reads that transpose: 16 lanes read rows of a matrix of small elements, and each of them gets a column.
// A lane reads `words` dwords that hold elements of `bits`; 64 / bits lanes... make a row of 16 elements.
template <unsigned bits, unsigned words>
void read_transposed(Wave& wave, const Instruction& i) {
  constexpr unsigned elements = 32 * words / bits;       // of a lane
  constexpr unsigned lanes_a_row = 16 / elements;        // 16 elements are a row
  constexpr unsigned bytes = 4 * words;
  const Mask lanes = wave.exec();
  if (lanes != kAllLanes) {
    for (unsigned group = 0; group < 4; ++group) {
      const Mask part = lanes >> (16 * group) & 0xffff;
      if (part != 0 && part != 0xffff) {
        throw Violation{FaultKind::kIllegal, "a transposing read by some of 16 lanes"};
      }
    }
  }
  const std::uint32_t* const address = wave.row(i.sources[0].index);
  Wave::Outstanding& operation = wave.issue_lds(Kind::kLdsRead);
  std::uint32_t data[kLanes][words + 1] = {};
  for_lanes(lanes, [&](unsigned lane) {
    const std::uint32_t at = address[lane] + static_cast<std::uint32_t>(i.immediate);
    operation.lds_address[lane] = at;
    std::uint8_t lacking = 0;
    const std::byte* place = wave.lds().access(Lds::Access::kRead, at, bytes, words == 2 ? 8 : 4, wave.index(),
                                               wave.epoch(), i.address, static_cast<int>(lane), nullptr, &lacking);
    if (lacking != 0) note_lacking(operation, lacking, Mask{0xffff} << (lane & 48));  // its row goes to all of them
    if (place != nullptr) std::memcpy(data[lane], place, bytes);
    else outside(operation, lane);
  });
  const auto element = [&](unsigned lane, unsigned at) -> std::uint32_t {
    const unsigned bit = at * bits;
    const std::uint64_t both = data[lane][bit / 32] | static_cast<std::uint64_t>(data[lane][bit / 32 + 1]) << 32;
    return static_cast<std::uint32_t>(both >> (bit % 32)) & ((1U << bits) - 1);
  };
  for_lanes(lanes, [&](unsigned lane) {
    const unsigned first = lane & ~15U, column = lane & 15;
    std::uint32_t result[words + 1] = {};
    for (unsigned at = 0; at < elements; ++at) {
      const std::uint64_t value = element(first + at * lanes_a_row + column / elements, column % elements);
      const unsigned bit = at * bits;
      result[bit / 32] |= static_cast<std::uint32_t>(value << (bit % 32));
      if (bit % 32 + bits > 32) result[bit / 32 + 1] |= static_cast<std::uint32_t>(value << (bit % 32) >> 32);
    }
    for (unsigned word = 0; word < words; ++word) wave.row(i.destination.index + word)[lane] = result[word];
  });
  operation.lds_bytes = bytes;
  operation.lanes = lanes;
  finish_read(wave, i, operation, Lds::Access::kRead);
  count(wave, lanes, operation.lds_address, bytes, Moves::kReads);
}

// ---- exchanges between lanes that touch no memory
void finish_exchange(Wave& wave, const Instruction& i, const std::uint32_t* result) {
  const Mask lanes = wave.exec();
  write_row(wave.row(i.destination.index), result, lanes);
  Wave::Outstanding& operation = wave.issue_lds(Kind::kLdsRead);
  wave.await(operation, {i.destination.index, 1}, lanes);
}

void swizzle(Wave& wave, const Instruction& i) {
  const auto control = static_cast<unsigned>(i.immediate) & 0xffff;
  const std::uint32_t* const data = wave.row(i.sources[0].index);
  std::uint32_t result[kLanes];
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    unsigned from = 0;
    if ((control & 0xe000) == 0xc000) {  // rotate in groups of 32
      const unsigned amount = control >> 5 & 31, mask = control & 31;
      const unsigned moved = (control & 0x400) != 0 ? lane - amount : lane + amount;
      from = (lane & mask) | (moved & ~mask & 31) | (lane & 32);
    } else if ((control & 0x8000) != 0) {  // any lane of four
      if ((control & 0x7f00) != 0) throw Violation{FaultKind::kIllegal, "a swizzle that does not exist"};
      from = (lane & ~3U) | (control >> (2 * (lane & 3)) & 3);
    } else {
      from = ((((lane & 31) & (control & 31)) | (control >> 5 & 31)) ^ (control >> 10 & 31)) | (lane & 32);
    }
    result[lane] = (wave.exec() >> from & 1) != 0 ? data[from] : 0;
  }
  finish_exchange(wave, i, result);
}

void bpermute(Wave& wave, const Instruction& i) {
  const std::uint32_t* const address = wave.row(i.sources[0].index);
  const std::uint32_t* const data = wave.row(i.sources[1].index);
  std::uint32_t result[kLanes];
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    const unsigned from = (address[lane] + static_cast<std::uint32_t>(i.immediate)) / 4 % kLanes;
    result[lane] = (wave.exec() >> from & 1) != 0 ? data[from] : 0;
  }
  finish_exchange(wave, i, result);
}

void permute(Wave& wave, const Instruction& i) {
  const std::uint32_t* const address = wave.row(i.sources[0].index);
  const std::uint32_t* const data = wave.row(i.sources[1].index);
  std::uint32_t result[kLanes] = {};
  for_lanes(wave.exec(), [&](unsigned lane) {
    result[(address[lane] + static_cast<std::uint32_t>(i.immediate)) / 4 % kLanes] = data[lane];
  });
  finish_exchange(wave, i, result);
}

struct Atomics {
  unsigned number;
  const char* name;
  Handler handler32, handler64;
};

}  // namespace

std::vector<Form> lds_forms() {
  std::vector<Form> made;
  const auto add = [&](unsigned number, const char* name, Type destination, Type address, Type data, Type data2,
                       Handler handler, std::uint32_t flags = 0) {
    made.push_back({Encoding::kDs,
                    static_cast<std::uint16_t>(number),
                    name,
                    destination,
                    {address, data, data2},
                    handler,
                    nullptr,
                    flags});
  };
  add(54, "ds_read_b32", B, B, N, N, read<4, false, 0>);
  add(118, "ds_read_b64", W, B, N, N, read<8, false, 0>);
  add(254, "ds_read_b96", Type::kB96, B, N, N, read<12, false, 0>);
  add(255, "ds_read_b128", Type::kB128, B, N, N, read<16, false, 0>);
  add(57, "ds_read_i8", B, B, N, N, read<1, true, 0>);
  add(58, "ds_read_u8", B, B, N, N, read<1, false, 0>);
  add(59, "ds_read_i16", B, B, N, N, read<2, true, 0>);
  add(60, "ds_read_u16", B, B, N, N, read<2, false, 0>);
  add(86, "ds_read_u8_d16", B, B, N, N, read<1, false, 1>);
  add(87, "ds_read_u8_d16_hi", B, B, N, N, read<1, false, 2>);
  add(88, "ds_read_i8_d16", B, B, N, N, read<1, true, 1>);
  add(89, "ds_read_i8_d16_hi", B, B, N, N, read<1, true, 2>);
  add(90, "ds_read_u16_d16", B, B, N, N, read<2, false, 1>);
  add(91, "ds_read_u16_d16_hi", B, B, N, N, read<2, false, 2>);
  add(55, "ds_read2_b32", W, B, N, N, two<4, false, 1>);
  add(56, "ds_read2st64_b32", W, B, N, N, two<4, false, 64>);
  add(119, "ds_read2_b64", Type::kB128, B, N, N, two<8, false, 1>);
  add(120, "ds_read2st64_b64", Type::kB128, B, N, N, two<8, false, 64>);
  add(13, "ds_write_b32", N, B, B, N, write<4>);
  add(77, "ds_write_b64", N, B, W, N, write<8>);
  add(222, "ds_write_b96", N, B, Type::kB96, N, write<12>);
  add(223, "ds_write_b128", N, B, Type::kB128, N, write<16>);
  add(30, "ds_write_b8", N, B, Type::kB8, N, write<1>);
  add(31, "ds_write_b16", N, B, Type::kB16, N, write<2>);
  add(84, "ds_write_b8_d16_hi", N, B, Type::kB16, N, write<1>, kHighHalf);
  add(85, "ds_write_b16_d16_hi", N, B, Type::kB16, N, write<2>, kHighHalf);
  add(14, "ds_write2_b32", N, B, B, B, two<4, true, 1>);
  add(15, "ds_write2st64_b32", N, B, B, B, two<4, true, 64>);
  add(78, "ds_write2_b64", N, B, W, W, two<8, true, 1>);
  add(79, "ds_write2st64_b64", N, B, W, W, two<8, true, 64>);
  add(224, "ds_read_b64_tr_b4", W, B, N, N, read_transposed<4, 2>);
  add(225, "ds_read_b96_tr_b6", Type::kB96, B, N, N, read_transposed<6, 3>);
  add(226, "ds_read_b64_tr_b8", W, B, N, N, read_transposed<8, 2>);
  add(227, "ds_read_b64_tr_b16", W, B, N, N, read_transposed<16, 2>);
  add(61, "ds_swizzle_b32", B, B, N, N, swizzle);
  add(62, "ds_permute_b32", B, B, B, N, permute);
  add(63, "ds_bpermute_b32", B, B, B, N, bpermute);
  add(20, "ds_nop", N, N, N, N, [](Wave&, const Instruction&) {});

  using U = std::uint32_t;
  using L = std::uint64_t;
  static std::vector<std::unique_ptr<std::string>> names;
  const auto add_atomic = [&](unsigned number, const std::string& operation, const std::string& type, Handler h,
                              Type data) {
    names.push_back(std::make_unique<std::string>("ds_" + operation + "_" + type));
    add(number, names.back()->c_str(), N, B, data, N, h);
    names.push_back(std::make_unique<std::string>("ds_" + operation + "_rtn_" + type));
    add(number + 32, names.back()->c_str(), data, B, data, N, h);
  };
  add_atomic(0, "add", "u32", atomic<U, added<U>>, B);
  add_atomic(1, "sub", "u32", atomic<U, subtracted<U>>, B);
  add_atomic(2, "rsub", "u32", atomic<U, reverse_subtracted<U>>, B);
  add_atomic(3, "inc", "u32", atomic<U, incremented<U>>, B);
  add_atomic(4, "dec", "u32", atomic<U, decremented<U>>, B);
  add_atomic(5, "min", "i32", atomic<U, signed_min<U>>, B);
  add_atomic(6, "max", "i32", atomic<U, signed_max<U>>, B);
  add_atomic(7, "min", "u32", atomic<U, unsigned_min<U>>, B);
  add_atomic(8, "max", "u32", atomic<U, unsigned_max<U>>, B);
  add_atomic(9, "and", "b32", atomic<U, anded<U>>, B);
  add_atomic(10, "or", "b32", atomic<U, ored<U>>, B);
  add_atomic(11, "xor", "b32", atomic<U, xored<U>>, B);
  add_atomic(18, "min", "f32", atomic<U, min_f32>, B);
  add_atomic(19, "max", "f32", atomic<U, max_f32>, B);
  add_atomic(21, "add", "f32", atomic<U, added_f32>, B);
  add_atomic(64, "add", "u64", atomic<L, added<L>>, W);
  add_atomic(65, "sub", "u64", atomic<L, subtracted<L>>, W);
  add_atomic(66, "rsub", "u64", atomic<L, reverse_subtracted<L>>, W);
  add_atomic(67, "inc", "u64", atomic<L, incremented<L>>, W);
  add_atomic(68, "dec", "u64", atomic<L, decremented<L>>, W);
  add_atomic(69, "min", "i64", atomic<L, signed_min<L>>, W);
  add_atomic(70, "max", "i64", atomic<L, signed_max<L>>, W);
  add_atomic(71, "min", "u64", atomic<L, unsigned_min<L>>, W);
  add_atomic(72, "max", "u64", atomic<L, unsigned_max<L>>, W);
  add_atomic(73, "and", "b64", atomic<L, anded<L>>, W);
  add_atomic(74, "or", "b64", atomic<L, ored<L>>, W);
  add_atomic(75, "xor", "b64", atomic<L, xored<L>>, W);
  add_atomic(82, "min", "f64", atomic<L, min_f64>, W);
  add_atomic(83, "max", "f64", atomic<L, max_f64>, W);
  add_atomic(92, "add", "f64", atomic<L, added_f64>, W);
  add(45, "ds_wrxchg_rtn_b32", B, B, B, N, atomic<U, swapped<U>>);
  add(109, "ds_wrxchg_rtn_b64", W, B, W, N, atomic<L, swapped<L>>);
  add(16, "ds_cmpst_b32", N, B, B, B, compare_store<U>);
  add(48, "ds_cmpst_rtn_b32", B, B, B, B, compare_store<U>);
  add(80, "ds_cmpst_b64", N, B, W, W, compare_store<L>);
  add(112, "ds_cmpst_rtn_b64", W, B, W, W, compare_store<L>);
  add(23, "ds_pk_add_f16", N, B, B, N, atomic<U, added_f16x2>);
  add(24, "ds_pk_add_bf16", N, B, B, N, atomic<U, added_bf16x2>);
  add(183, "ds_pk_add_rtn_f16", B, B, B, N, atomic<U, added_f16x2>);
  add(184, "ds_pk_add_rtn_bf16", B, B, B, N, atomic<U, added_bf16x2>);
  return made;
}

}  // namespace msa_ops::emulator::gfx950

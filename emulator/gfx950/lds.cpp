#include "lds.hpp"

#include <algorithm>
#include <cstring>

namespace msa_ops::emulator::gfx950 {
namespace {

constexpr std::uint8_t kSeveral = 0xff;

std::string name_of_owner(unsigned owner) {
  return owner == kSeveral ? "several waves" : "wave " + std::to_string(owner - 1);
}

// Four dwords of a field, or four bytes of each of them.
typedef std::uint32_t Dwords __attribute__((vector_size(16)));
typedef std::uint8_t Bytes __attribute__((vector_size(16)));
typedef std::uint64_t Pair __attribute__((vector_size(16)));
constexpr std::size_t kPadding = 4;  // dwords

Bytes bytes_of(const Dwords& dwords) { return reinterpret_cast<Bytes>(dwords); }
Dwords dwords_of(const Bytes& bytes) { return reinterpret_cast<Dwords>(bytes); }
Bytes all_of(std::uint8_t byte) { return Bytes{} + byte; }
Dwords where(const Bytes& condition) { return reinterpret_cast<Dwords>(condition); }

// As many dwords as there are, through registers. Of three a fourth is read too (kPadding).
template <unsigned bytes>
inline __attribute__((always_inline)) Dwords load(const void* from) {
  if constexpr (bytes == 4) {
    std::uint32_t one;
    std::memcpy(&one, from, 4);
    return Dwords{one, 0, 0, 0};
  } else if constexpr (bytes == 8) {
    std::uint64_t two;
    std::memcpy(&two, from, 8);
    return reinterpret_cast<Dwords>(Pair{two, 0});
  } else {
    Dwords four;
    std::memcpy(&four, from, 16);
    return four;
  }
}
template <unsigned bytes>
inline __attribute__((always_inline)) void store(std::uint32_t* to, const Dwords& value) {
  if constexpr (bytes == 16) {
    std::memcpy(to, &value, 16);
    return;
  }
  if constexpr (bytes == 4) {
    *to = value[0];
  } else {
    const std::uint64_t two = reinterpret_cast<Pair>(value)[0];
    std::memcpy(to, &two, 8);
  }
  if constexpr (bytes == 12) to[2] = value[2];
}

template <unsigned bytes>
inline __attribute__((always_inline)) bool any(const Dwords& condition) {
  const Pair parts = reinterpret_cast<Pair>(condition);
  if (bytes == 4) return static_cast<std::uint32_t>(parts[0]) != 0;
  if (bytes == 8) return parts[0] != 0;
  if (bytes == 12) return (parts[0] | static_cast<std::uint32_t>(parts[1])) != 0;
  return (parts[0] | parts[1]) != 0;
}

}  // namespace

// ---- what is known of dwords

void Lds::Shadows::resize(std::size_t count) {
  for (auto* field : {&epoch, &writers, &readers, &state, &instruction, &waves, &write_time, &read_time}) field->resize(count + kPadding);
}
void Lds::Shadows::clear() {
  for (auto* field : {&epoch, &writers, &readers, &state, &instruction, &waves, &write_time, &read_time})
    std::fill(field->begin(), field->end(), 0U);
}
Lds::Shadow Lds::Shadows::at(std::size_t dword) const {
  Shadow made{};
  made.epoch = epoch[dword];
  std::memcpy(made.writers, &writers[dword], 4);
  std::memcpy(made.readers, &readers[dword], 4);
  std::memcpy(&made.written, &state[dword], 4);
  made.instruction = instruction[dword];
  std::memcpy(&made.reader_waves, &waves[dword], 4);
  made.write_time = write_time[dword];
  made.read_time = read_time[dword];
  return made;
}
void Lds::Shadows::set(std::size_t dword, const Shadow& value) {
  epoch[dword] = value.epoch;
  std::memcpy(&writers[dword], value.writers, 4);
  std::memcpy(&readers[dword], value.readers, 4);
  std::memcpy(&state[dword], &value.written, 4);
  instruction[dword] = value.instruction;
  std::memcpy(&waves[dword], &value.reader_waves, 4);
  write_time[dword] = value.write_time;
  read_time[dword] = value.read_time;
}

Lds::Lds(std::size_t bytes) : size_(bytes), data_(bytes + 4 * kPadding) { shadow_.resize((bytes + 3) / 4); }

void Lds::reset() {
  shadow_.clear();
  order_.reset();
  race_.reset();
}

Violation Lds::race(const char* what, const Shadow& shadow, unsigned owner, std::uint32_t address, int lane) {
  return {FaultKind::kRace,
          std::string(what) + " " + name_of_owner(owner) +
              (shadow.instruction != 0 ? ", last written at " + hex(shadow.instruction - 1) : std::string()),
          lane, address};
}

// What was read in a race has no value, which is a fault only for who uses it.
bool Lds::refuse(Violation violation, std::uint32_t instruction, std::uint8_t* lacking) {
  if (accepts(violation.kind, instruction)) return true;
  if (lacking == nullptr) throw violation;
  *lacking |= kRaced;
  if (!race_) race_ = std::move(violation);
  return false;
}

bool Lds::is_after_write(unsigned wave, unsigned writer, const Shadow& shadow, std::uint32_t address) const {
  if (shadow.atomic != 0) return order_.after_atomics(wave, address);
  return writer != kSeveral && order_.after(wave, writer - 1, shadow.write_time);
}

unsigned Lds::unordered_reader(unsigned wave, unsigned mask, const Shadow& shadow) const {
  for (mask &= ~(1U << wave); mask != 0; mask &= mask - 1) {
    const auto reader = static_cast<unsigned>(__builtin_ctz(mask));
    if (!order_.after(wave, reader, shadow.read_time)) return reader;
  }
  return LdsOrder::kWaves;
}

bool Lds::access_dwords(Access kind, std::uint32_t address, unsigned bytes, unsigned wave, std::uint32_t epoch,
                        std::uint32_t instruction, const void* data) {
  switch ((address & 3) == 0 && address <= size_ && bytes <= size_ - address ? bytes : 0) {
    case 4: return access_whole<4>(kind, address, wave, epoch, instruction, data);
    case 8: return access_whole<8>(kind, address, wave, epoch, instruction, data);
    case 12: return access_whole<12>(kind, address, wave, epoch, instruction, data);
    case 16: return access_whole<16>(kind, address, wave, epoch, instruction, data);
    default: return false;
  }
}

template <unsigned bytes>
bool Lds::access_whole(Access kind, std::uint32_t address, unsigned wave, std::uint32_t epoch,
                       std::uint32_t instruction, const void* data) {
  const std::size_t at = address / 4;
  const auto owner = static_cast<std::uint8_t>(wave + 1);
  Dwords state = load<bytes>(&shadow_.state[at]);
  const bool reads = kind == Access::kRead || kind == Access::kFollowedRead;
  if (!reads && kind != Access::kWrite && kind != Access::kLoadedWrite) return false;
  if (any<bytes>(state & (reads ? Dwords{} + 0xff00U : Dwords{} + 0xffff00U))) return false;
  const Bytes own = all_of(owner), nobody{};
  const Dwords fresh = reinterpret_cast<Dwords>(load<bytes>(&shadow_.epoch[at]) != epoch);
  const Bytes writers = bytes_of(load<bytes>(&shadow_.writers[at]) & ~fresh);
  const Bytes readers = bytes_of(load<bytes>(&shadow_.readers[at]) & ~fresh);
  const Dwords waves = load<bytes>(&shadow_.waves[at]) & ~fresh;
  if (reads) {
    if (any<bytes>((state & 15U) ^ 15U)) return false;
    if (single_) return true;
    if (order_.knows_others(wave)) return false;
    if (any<bytes>(where((writers != nobody) & (writers != own)))) return false;
    if (kind == Access::kRead) {
      const Bytes mine = reinterpret_cast<Bytes>((readers == nobody) | (readers == own));
      store<bytes>(&shadow_.readers[at], dwords_of((own & mine) | ~mine));  // kSeveral has all bits
      store<bytes>(&shadow_.waves[at], waves | 1U << wave);
    } else {
      store<bytes>(&shadow_.readers[at], dwords_of(readers));
      store<bytes>(&shadow_.waves[at], waves | 0x10000U << wave);
    }
    store<bytes>(&shadow_.read_time[at], Dwords{} + order_.now());
    state &= ~(fresh & 0xff000000U);
    store<bytes>(&shadow_.writers[at], dwords_of(writers));
    store<bytes>(&shadow_.epoch[at], Dwords{} + epoch);
    store<bytes>(&shadow_.state[at], state);
    return true;
  }
  if (!single_) {
    if (order_.has_locks() || any<bytes>(waves & (0xffff0000U & ~(0x10000U << wave)))) return false;
    // Bytes that are written and stay the same. Those of dwords that are written in part are looked at one by one.
    Bytes same{};
    if (data != nullptr) {
      if (any<bytes>(reinterpret_cast<Dwords>((state & 15U) != 15U) & reinterpret_cast<Dwords>((state & 15U) != 0U)))
        return false;
      const Dwords before = load<bytes>(&data_[address]);
      Dwords after{};
      if constexpr (bytes == 12) std::memcpy(&after, data, bytes);
      else after = load<bytes>(data);
      same = reinterpret_cast<Bytes>(bytes_of(before) == bytes_of(after)) &
             bytes_of(reinterpret_cast<Dwords>((state & 15U) == 15U));
    }
    const Bytes others = reinterpret_cast<Bytes>(((writers != nobody) & (writers != own)) |
                                                 ((readers != nobody) & (readers != own)));
    if (any<bytes>(dwords_of(others & ~same))) return false;
    store<bytes>(&shadow_.writers[at], dwords_of((writers & same) | (own & ~same)));
    store<bytes>(&shadow_.readers[at], dwords_of(readers));
    store<bytes>(&shadow_.epoch[at], Dwords{} + epoch);
    store<bytes>(&shadow_.waves[at], waves);
    store<bytes>(&shadow_.write_time[at], Dwords{} + order_.now());
    state &= 0x00ffffffU;  // not atomic
  }
  store<bytes>(&shadow_.state[at], state | 15U);
  store<bytes>(&shadow_.instruction[at], Dwords{} + (instruction + 1));
  return true;
}

std::byte* Lds::access_bytes(Access kind, std::uint32_t address, unsigned bytes, unsigned alignment, unsigned wave,
                             std::uint32_t epoch, std::uint32_t instruction, int lane, const void* data,
                             std::uint8_t* lacking) {
  if ((address & (alignment - 1)) != 0) {
    throw Violation{FaultKind::kMisaligned, "access of " + std::to_string(bytes) + " bytes of the LDS", lane, address};
  }
  if (address > size_ || bytes > size_ - address) {
    if (accepts(FaultKind::kOutOfBounds, instruction)) {
      std::memset(outside_, 0, sizeof(outside_));
      return outside_;
    }
    if (lacking != nullptr) {
      *lacking |= kUnwritten;
      return nullptr;
    }
    throw Violation{FaultKind::kOutOfBounds,
                    "access of " + std::to_string(bytes) + " bytes of the LDS; the workgroup has " +
                        std::to_string(size_) + " bytes",
                    lane, address};
  }
  const unsigned first = address / 4, last = (address + bytes - 1) / 4;
  for (unsigned at = first; at <= last; ++at) {
    unsigned byte_mask = 15;
    if (at == first) byte_mask &= 15U << (address & 3);
    if (at == last) byte_mask &= 15U >> (3 - ((address + bytes - 1) & 3));
    // Where byte 0 of the dword is in the data; only bytes of the mask are looked at.
    const auto* const own = data == nullptr
                                ? nullptr
                                : static_cast<const std::byte*>(data) +
                                      (static_cast<std::ptrdiff_t>(at) * 4 - static_cast<std::ptrdiff_t>(address));
    Shadow shadow = shadow_.at(at);
    check_dword(kind, shadow, byte_mask, wave, epoch, at * 4, instruction, lane, own, lacking);
    shadow_.set(at, shadow);
  }
  return &data_[address];
}

void Lds::check_dword(Access kind, Shadow& shadow, unsigned byte_mask, unsigned wave, std::uint32_t epoch,
                      std::uint32_t address, std::uint32_t instruction, int lane, const std::byte* data,
                      std::uint8_t* lacking) {
  const auto owner = static_cast<std::uint8_t>(wave + 1);
  const bool follows = kind == Access::kLoadedWrite && shadow.flight_write == owner;
  if (kind == Access::kLoadedWrite) kind = Access::kWrite;
  const bool reads = kind == Access::kRead || kind == Access::kFollowedRead || kind == Access::kPoll;
  if (shadow.flight_write != 0 && !follows) {
    const Violation fault =
        shadow.flight_write == owner
            ? Violation{FaultKind::kMissingWait,
                        "the LDS here is the destination of a load at " + hex(shadow.instruction - 1) +
                            " that this wave has not waited for",
                        lane, address}
            : race("data in flight to the LDS here, not waited for by", shadow, shadow.flight_write, address, lane);
    if (!refuse(fault, instruction, lacking)) return;
  }
  if (kind != Access::kWrite && (byte_mask & ~unsigned{shadow.written}) != 0 &&
      !accepts(FaultKind::kUninitializedShared, instruction)) {
    if (lacking == nullptr) {
      throw Violation{FaultKind::kUninitializedShared, "read of a byte of the LDS that nothing has written", lane,
                      address};
    }
    *lacking |= kUnwritten;
    return;  // nothing has been read that a later write could change
  }
  if (!reads && shadow.flight_read != 0 && shadow.flight_read != owner) {
    refuse(race("write of what is still being read by", shadow, shadow.flight_read, address, lane), instruction, nullptr);
  }
  bool atomic = kind == Access::kAtomic || kind == Access::kAtomicReturn || kind == Access::kExchange;
  if (!single_) {
    if (shadow.epoch != epoch) begin_epoch(shadow, epoch);
    if (kind == Access::kWrite && byte_mask == 15 && order_.may_unlock(wave, address)) atomic = true;
    if (atomic && shadow.atomic != 0 && kind != Access::kAtomic && kind != Access::kWrite)
      order_.take_up_atomics(wave, address);
    if (reads && order_.knows_others(wave)) {
      // Who comes after this read comes after those before it too.
      if (unordered_reader(wave, shadow.reader_waves, shadow) == LdsOrder::kWaves) {
        std::memset(shadow.readers, 0, sizeof(shadow.readers));
        shadow.reader_waves = 0;
      }
      if (unordered_reader(wave, shadow.followed, shadow) == LdsOrder::kWaves) shadow.followed = 0;
    }
    unsigned changed = 0;
    for (unsigned byte = 0; byte < 4; ++byte) {
      if ((byte_mask >> byte & 1) == 0) continue;
      const std::uint8_t writer = shadow.writers[byte];
      // A write of the value that is there already is nothing that another wave could see: waves whose lanes have
      // nothing to do write zeros to a place that nobody uses.
      if (kind == Access::kWrite && !atomic && data != nullptr && (shadow.written >> byte & 1) != 0 &&
          data[byte] == data_[address + byte])
        continue;
      if (writer != 0 && writer != owner && !(atomic && shadow.atomic != 0)) {
        if (kind == Access::kPoll) {
          if (shadow.atomic != 0) order_.take_up_atomics(wave, address);
          else if (writer != kSeveral) order_.take_up(wave, writer - 1, shadow.write_time);
        } else if (!is_after_write(wave, writer, shadow, address)) {
          const char* const what =
              reads ? "read without a barrier after the write by" : "write without a barrier after the write by";
          if (!refuse(race(what, shadow, writer, address + byte, lane), instruction, lacking)) return;
        }
      }
      if (kind == Access::kRead) {
        const std::uint8_t reader = shadow.readers[byte];
        shadow.readers[byte] = reader == 0 || reader == owner ? owner : kSeveral;
      } else if (!reads) {
        if (const std::uint8_t reader = shadow.readers[byte]; reader != 0 && reader != owner) {
          if (const unsigned other = unordered_reader(wave, shadow.reader_waves, shadow); other < LdsOrder::kWaves)
            refuse(race("write without a barrier after the read by", shadow, other + 1, address + byte, lane), instruction,
                   nullptr);
        }
        changed |= 1U << byte;
        shadow.writers[byte] = atomic && writer != 0 && writer != owner ? kSeveral : owner;
      }
    }
    if (kind == Access::kRead) shadow.reader_waves = static_cast<std::uint16_t>(shadow.reader_waves | 1U << wave);
    if (kind == Access::kFollowedRead) shadow.followed = static_cast<std::uint16_t>(shadow.followed | 1U << wave);
    if (reads) {
      if (kind != Access::kPoll) shadow.read_time = order_.now();
    } else if (changed != 0) {
      if (shadow.followed != 0) forget_reads(shadow, changed, wave, address, instruction, lane);
      shadow.write_time = order_.now();
      shadow.atomic = atomic ? 1 : 0;
      if (atomic) order_.atomic(wave, address, kind == Access::kExchange);
    }
  }
  if (!reads) {
    shadow.written = static_cast<std::uint8_t>(shadow.written | byte_mask);
    shadow.instruction = instruction + 1;
  }
}

void Lds::begin_epoch(Shadow& shadow, std::uint32_t epoch) {
  shadow.epoch = epoch;
  std::memset(shadow.writers, 0, sizeof(shadow.writers));
  std::memset(shadow.readers, 0, sizeof(shadow.readers));
  shadow.reader_waves = shadow.followed = 0;
  shadow.atomic = 0;
}

// A write to what others have read, which nothing orders: they may not use it.
void Lds::forget_reads(Shadow& shadow, unsigned byte_mask, unsigned wave, std::uint32_t address,
                       std::uint32_t instruction, int lane) {
  if (accepts(FaultKind::kRace, instruction)) return;
  for (unsigned others = shadow.followed & ~(1U << wave); others != 0;) {
    const unsigned reader = unordered_reader(wave, others, shadow);
    if (reader == LdsOrder::kWaves) return;
    others &= ~(1U << reader);
    Violation fault = race("write without a barrier after the read by", shadow, reader + 1, address, lane);
    const Violation later{FaultKind::kRace,
                          "read of what " + name_of_owner(wave + 1) + " writes with no barrier between them", lane, address};
    if (!readers_[reader]->forget_read(address, byte_mask, later)) throw fault;
  }
}

void Lds::forget(std::uint32_t address, unsigned bytes) {
  for (std::uint32_t at = address; at < address + bytes; ++at) shadow_.state[at / 4] &= ~(1U << (at & 3));
}

Lds::Repeated Lds::repeats(std::uint32_t address, const void* data, unsigned bytes, unsigned wave) {
  if (address > size_ || bytes > size_ - address) return Repeated::kNo;
  const unsigned first = address / 4, last = (address + bytes - 1) / 4;
  for (unsigned at = first; at <= last; ++at) {
    if ((shadow_.state[at] & 15) != 15) return Repeated::kNo;
  }
  if (std::memcmp(&data_[address], data, bytes) != 0) return Repeated::kNo;
  Repeated made = Repeated::kThere;
  for (unsigned at = first; at <= last; ++at) {
    Shadow shadow = shadow_.at(at);
    if (shadow.flight_write == 0) continue;
    if (shadow.flight_write != wave + 1) shadow.flight_write = kSeveral;
    shadow_.set(at, shadow);
    made = Repeated::kComing;
  }
  return made;
}

void Lds::put_in_flight(bool write, std::uint32_t address, unsigned bytes, unsigned wave, std::uint32_t instruction) {
  const unsigned shift = write ? 8 : 16;
  for (unsigned at = address / 4; at <= (address + bytes - 1) / 4; ++at) {
    shadow_.state[at] = (shadow_.state[at] & ~(0xffU << shift)) | (wave + 1) << shift;
    if (write) shadow_.instruction[at] = instruction + 1;
  }
}

void Lds::settle(bool write, std::uint32_t address, unsigned bytes, unsigned wave, std::uint32_t epoch,
                 std::uint32_t instruction) {
  const std::uint32_t owner = wave + 1;
  const unsigned shift = write ? 8 : 16;
  std::vector<std::uint32_t>& touched = write ? shadow_.writers : shadow_.readers;
  for (unsigned at = address / 4; at <= (address + bytes - 1) / 4; ++at) {
    std::uint32_t& state = shadow_.state[at];
    const std::uint32_t flight = state >> shift & 0xff;
    if (write && flight == owner && shadow_.instruction[at] != instruction + 1) continue;  // a later load is on its way
    if (write && flight != owner && flight != kSeveral) continue;  // the same has come by another wave's load
    if (flight == owner || write) state &= ~(0xffU << shift);
    if (shadow_.epoch[at] != epoch) {
      shadow_.epoch[at] = epoch;
      shadow_.writers[at] = shadow_.readers[at] = shadow_.waves[at] = 0;
      state &= 0x00ffffff;  // not atomic
    }
    if (write) state &= 0x00ffffff;
    touched[at] = owner * 0x01010101U;
    if (write) {
      shadow_.instruction[at] = instruction + 1;
      shadow_.write_time[at] = order_.now();
    } else {
      shadow_.waves[at] |= 1U << wave;
      shadow_.read_time[at] = order_.now();
    }
  }
}

}  // namespace msa_ops::emulator::gfx950

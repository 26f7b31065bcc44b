#include "lds.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace msa_ops::emulator::gfx950 {
namespace {

constexpr std::uint8_t kSeveral = 0xff;

std::string hex(std::uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof(text), "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

std::string name_of_owner(unsigned owner) {
  return owner == kSeveral ? "several waves" : "wave " + std::to_string(owner - 1);
}

}  // namespace

Lds::Lds(std::size_t bytes) : data_(bytes), shadow_((bytes + 3) / 4) {}

void Lds::reset() { std::fill(shadow_.begin(), shadow_.end(), Shadow{}); }

void Lds::race(const char* what, const Shadow& shadow, unsigned owner, std::uint32_t address, int lane) const {
  throw Violation{FaultKind::kRace,
                  std::string(what) + " " + name_of_owner(owner) +
                      (shadow.instruction != 0 ? ", last written at " + hex(shadow.instruction - 1) : std::string()),
                  lane, address};
}

std::byte* Lds::access(Access kind, std::uint32_t address, unsigned bytes, unsigned alignment, unsigned wave,
                       std::uint32_t epoch, std::uint32_t instruction, int lane, const void* data, bool* unwritten) {
  if ((address & (alignment - 1)) != 0) {
    throw Violation{FaultKind::kMisaligned, "access of " + std::to_string(bytes) + " bytes of the LDS", lane, address};
  }
  if (address > data_.size() || bytes > data_.size() - address) {
    if (unwritten != nullptr) {
      *unwritten = true;
      return nullptr;
    }
    throw Violation{FaultKind::kOutOfBounds,
                    "access of " + std::to_string(bytes) + " bytes of the LDS; the workgroup has " +
                        std::to_string(data_.size()) + " bytes",
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
    check_dword(kind, shadow_[at], byte_mask, wave, epoch, at * 4, instruction, lane, own, unwritten);
  }
  return &data_[address];
}

void Lds::check_dword(Access kind, Shadow& shadow, unsigned byte_mask, unsigned wave, std::uint32_t epoch,
                      std::uint32_t address, std::uint32_t instruction, int lane, const std::byte* data,
                      bool* unwritten) {
  const auto owner = static_cast<std::uint8_t>(wave + 1);
  const bool follows = kind == Access::kLoadedWrite && shadow.flight_write == owner;
  if (kind == Access::kLoadedWrite) kind = Access::kWrite;
  if (shadow.flight_write != 0 && !follows) {
    if (shadow.flight_write == owner) {
      throw Violation{FaultKind::kMissingWait,
                      "the LDS here is the destination of a load at " + hex(shadow.instruction - 1) +
                          " that this wave has not waited for",
                      lane, address};
    }
    race("data in flight to the LDS here, not waited for by", shadow, shadow.flight_write, address, lane);
  }
  if (kind != Access::kWrite && (byte_mask & ~unsigned{shadow.written}) != 0 && unwritten != nullptr) {
    *unwritten = true;
    return;  // nothing has been read that a later write could change
  } else if (kind != Access::kWrite && (byte_mask & ~unsigned{shadow.written}) != 0) {
    throw Violation{FaultKind::kUninitializedShared, "read of a byte of the LDS that nothing has written", lane,
                    address};
  }
  if (kind != Access::kRead) {
    if (shadow.flight_read != 0 && shadow.flight_read != owner) {
      race("write of what is still being read by", shadow, shadow.flight_read, address, lane);
    }
  }
  if (!single_) {
    if (shadow.epoch != epoch) {
      shadow.epoch = epoch;
      std::memset(shadow.writers, 0, 4);
      std::memset(shadow.readers, 0, 4);
      shadow.atomic = 0;
    }
    for (unsigned byte = 0; byte < 4; ++byte) {
      if ((byte_mask >> byte & 1) == 0) continue;
      const std::uint8_t writer = shadow.writers[byte], reader = shadow.readers[byte];
      // A write of the value that is there already is nothing that another wave could see: waves whose lanes have
      // nothing to do write zeros to a place that nobody uses.
      if (kind == Access::kWrite && data != nullptr && (shadow.written >> byte & 1) != 0 &&
          data[byte] == data_[address + byte])
        continue;
      if (writer != 0 && writer != owner && !(kind == Access::kAtomic && shadow.atomic != 0)) {
        race(kind == Access::kRead ? "read without a barrier after the write by"
                                   : "write without a barrier after the write by",
             shadow, writer, address + byte, lane);
      }
      if (kind == Access::kRead) {
        shadow.readers[byte] = reader == 0 || reader == owner ? owner : kSeveral;
      } else {
        if (reader != 0 && reader != owner)
          race("write without a barrier after the read by", shadow, reader, address + byte, lane);
        shadow.writers[byte] = kind == Access::kAtomic && writer != 0 && writer != owner ? kSeveral : owner;
      }
    }
    if (kind == Access::kAtomic) shadow.atomic = 1;
    else if (kind == Access::kWrite) shadow.atomic = 0;
  }
  if (kind != Access::kRead) {
    shadow.written = static_cast<std::uint8_t>(shadow.written | byte_mask);
    shadow.instruction = instruction + 1;
  }
}

void Lds::forget(std::uint32_t address, unsigned bytes) {
  for (std::uint32_t at = address; at < address + bytes; ++at) {
    shadow_[at / 4].written = static_cast<std::uint8_t>(shadow_[at / 4].written & ~(1U << (at & 3)));
  }
}

Lds::Repeated Lds::repeats(std::uint32_t address, const void* data, unsigned bytes, unsigned wave) {
  if (address > data_.size() || bytes > data_.size() - address) return Repeated::kNo;
  const unsigned first = address / 4, last = (address + bytes - 1) / 4;
  for (unsigned at = first; at <= last; ++at) {
    if (shadow_[at].written != 15) return Repeated::kNo;
  }
  if (std::memcmp(&data_[address], data, bytes) != 0) return Repeated::kNo;
  Repeated made = Repeated::kThere;
  for (unsigned at = first; at <= last; ++at) {
    std::uint8_t& flight = shadow_[at].flight_write;
    if (flight == 0) continue;
    if (flight != wave + 1) flight = kSeveral;
    made = Repeated::kComing;
  }
  return made;
}

void Lds::put_in_flight(bool write, std::uint32_t address, unsigned bytes, unsigned wave, std::uint32_t instruction) {
  for (unsigned at = address / 4; at <= (address + bytes - 1) / 4; ++at) {
    Shadow& shadow = shadow_[at];
    if (write) {
      shadow.flight_write = static_cast<std::uint8_t>(wave + 1);
      shadow.instruction = instruction + 1;
    } else {
      shadow.flight_read = static_cast<std::uint8_t>(wave + 1);
    }
  }
}

void Lds::settle(bool write, std::uint32_t address, unsigned bytes, unsigned wave, std::uint32_t epoch,
                 std::uint32_t instruction) {
  const auto owner = static_cast<std::uint8_t>(wave + 1);
  for (unsigned at = address / 4; at <= (address + bytes - 1) / 4; ++at) {
    Shadow& shadow = shadow_[at];
    std::uint8_t& flight = write ? shadow.flight_write : shadow.flight_read;
    if (write && flight == owner && shadow.instruction != instruction + 1) continue;  // a later load is on its way
    if (write && flight != owner && flight != kSeveral) continue;  // the same has come by another wave's load
    if (flight == owner || write) flight = 0;
    if (shadow.epoch != epoch) {
      shadow.epoch = epoch;
      std::memset(shadow.writers, 0, 4);
      std::memset(shadow.readers, 0, 4);
      shadow.atomic = 0;
    }
    std::memset(write ? shadow.writers : shadow.readers, owner, 4);
    if (write) shadow.instruction = instruction + 1;
  }
}

}  // namespace msa_ops::emulator::gfx950

// The local data share of one workgroup: its bytes, which of them were ever written, and who touched them since the
// last barrier.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "../device/fault.hpp"
#include "instruction.hpp"

namespace msa_ops::emulator::gfx950 {

class Lds {
 public:
  // kLoadedWrite: by a load to the LDS; those of one wave arrive in their order.
  enum class Access { kRead, kWrite, kAtomic, kLoadedWrite };

  explicit Lds(std::size_t bytes);
  void reset();  // nothing is written

  std::size_t bytes() const { return size_; }
  // Checks an access of a lane and returns its place: Violation if it is outside, misaligned, reads what nothing has
  // written, meets data in flight, or races with another wave of the same epoch (the number of barriers passed).
  // `alignment` is a power of two. A read with `unwritten` tells there
  // what it would otherwise throw, and returns null outside: the hardware gives 0 there, and kernels may drop it.
  // `data` is what a write will write: waves may write the same value to a place.
  std::byte* access(Access kind, std::uint32_t address, unsigned bytes, unsigned alignment, unsigned wave,
                    std::uint32_t epoch, std::uint32_t instruction, int lane, const void* data = nullptr,
                    bool* unwritten = nullptr) {
    if ((address & (alignment - 1)) != 0 || !access_dwords(kind, address, bytes, wave, epoch, instruction, data)) {
      return access_bytes(kind, address, bytes, alignment, wave, epoch, instruction, lane, data, unwritten);
    }
    return &data_[address];
  }

  // What has been written there has no value.
  void forget(std::uint32_t address, unsigned bytes);
  // Whether a load of `wave` brings what is there already, or what other loads are bringing: then it changes nothing.
  // kComing: whoever waits for one of those loads may read.
  enum class Repeated { kNo, kThere, kComing };
  Repeated repeats(std::uint32_t address, const void* data, unsigned bytes, unsigned wave);
  // A range that an operation of `wave` will write or read at a time that nothing has fixed yet, until `settle`.
  void put_in_flight(bool write, std::uint32_t address, unsigned bytes, unsigned wave, std::uint32_t instruction);
  void settle(bool write, std::uint32_t address, unsigned bytes, unsigned wave, std::uint32_t epoch,
              std::uint32_t instruction);

  void set_single_wave(bool single) { single_ = single; }
  // Where the instruction stands that last wrote the dword, for messages.
  std::uint32_t last_writer(std::uint32_t address) const { return shadow_.instruction[address / 4]; }

 private:
  // What is known of a dword. Owners are wave + 1; 0 is nobody, kSeveral more than one.
  struct Shadow {
    std::uint32_t epoch;
    std::uint8_t writers[4];
    std::uint8_t readers[4];
    std::uint8_t written;       // a bit a byte
    std::uint8_t flight_write;  // owner
    std::uint8_t flight_read;   // owner
    std::uint8_t atomic;        // the writers of this epoch were atomic operations
    std::uint32_t instruction;  // that last wrote it, + 1
  };
  // The same of all dwords, a word of four dwords at a time. The last four fields of bytes are one word, `state`.
  struct Shadows {
    std::vector<std::uint32_t> epoch, writers, readers, state, instruction;
    void resize(std::size_t count);
    void clear();
    Shadow at(std::size_t dword) const;
    void set(std::size_t dword, const Shadow& value);
  };
  // Of whole dwords in the common cases; false, and nothing has happened, if somebody has to look closer.
  bool access_dwords(Access kind, std::uint32_t address, unsigned bytes, unsigned wave, std::uint32_t epoch,
                     std::uint32_t instruction, const void* data);
  template <unsigned bytes>
  bool access_whole(Access kind, std::uint32_t address, unsigned wave, std::uint32_t epoch, std::uint32_t instruction,
                    const void* data);
  std::byte* access_bytes(Access kind, std::uint32_t address, unsigned bytes, unsigned alignment, unsigned wave,
                          std::uint32_t epoch, std::uint32_t instruction, int lane, const void* data, bool* unwritten);
  void check_dword(Access kind, Shadow& shadow, unsigned byte_mask, unsigned wave, std::uint32_t epoch,
                   std::uint32_t address, std::uint32_t instruction, int lane, const std::byte* data,
                   bool* unwritten);
  [[noreturn]] void race(const char* what, const Shadow& shadow, unsigned owner, std::uint32_t address, int lane) const;

  std::size_t size_;
  std::vector<std::byte> data_;
  Shadows shadow_;
  bool single_ = false;
};

}  // namespace msa_ops::emulator::gfx950

// The local data share of one workgroup: its bytes, which of them were ever written, and who touched them since the
// last barrier, with what orders waves besides barriers (lds_order.hpp).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "../device/fault.hpp"
#include "accepted.hpp"
#include "instruction.hpp"
#include "lds_order.hpp"

namespace msa_ops::emulator::gfx950 {

// A wave that knows what became of the values that it has read from the LDS.
class LdsReader {
 public:
  virtual ~LdsReader() = default;
  // Another wave writes these bytes (a bit each) of a dword that this one has read by kFollowedRead, with no order between
  // them. False if what was read has been used; otherwise it has no value from now on, and using it is this fault.
  virtual bool forget_read(std::uint32_t address, unsigned byte_mask, const Violation& fault) = 0;
};

class Lds {
 public:
  // kFollowedRead: the reader can tell later whether the value was used. kPoll: of a flag, for what another wave stores.
  // kAtomicReturn: an atomic operation that tells the wave what it found; kExchange: one that may take a lock.
  // kLoadedWrite: by a load to the LDS; those of one wave arrive in their order.
  enum class Access { kRead, kFollowedRead, kPoll, kWrite, kAtomic, kAtomicReturn, kExchange, kLoadedWrite };
  // Why what was read has no value: nothing wrote the bytes or the address is outside, or a race.
  enum Lacking : std::uint8_t { kUnwritten = 1, kRaced = 2 };

  explicit Lds(std::size_t bytes);
  void reset();  // nothing is written

  std::size_t bytes() const { return size_; }
  // Checks an access of a lane and returns its place: Violation if it is outside, misaligned, reads what nothing has
  // written, meets data in flight, or races with another wave of the same epoch (the number of barriers passed).
  // `alignment` is a power of two. A read with `lacking` tells there
  // what it would otherwise throw, and returns null outside: the hardware gives 0 there, and kernels may drop it. What a
  // race was is told by take_race.
  // `data` is what a write will write: waves may write the same value to a place.
  std::byte* access(Access kind, std::uint32_t address, unsigned bytes, unsigned alignment, unsigned wave,
                    std::uint32_t epoch, std::uint32_t instruction, int lane, const void* data = nullptr,
                    std::uint8_t* lacking = nullptr) {
    if ((address & (alignment - 1)) != 0 || !access_dwords(kind, address, bytes, wave, epoch, instruction, data)) {
      return access_bytes(kind, address, bytes, alignment, wave, epoch, instruction, lane, data, lacking);
    }
    return &data_[address];
  }

  std::optional<Violation> take_race() { return std::exchange(race_, std::nullopt); }
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
  bool is_single_wave() const { return single_; }
  void set_accepted(const AcceptedFaults* accepted) { accepted_ = accepted; }
  void set_reader(unsigned wave, LdsReader* reader) { readers_[wave] = reader; }
  void tick() { order_.tick(); }
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
    std::uint16_t reader_waves;  // of readers, of any byte: a bit a wave
    std::uint16_t followed;      // the same of reads that are followed, which are not in readers
    std::uint32_t write_time, read_time;  // the last (LdsOrder)
  };
  // The same of all dwords, a word of four dwords at a time. The last four fields of bytes are one word,
  // `state`, and so are the masks of waves, `waves`.
  struct Shadows {
    std::vector<std::uint32_t> epoch, writers, readers, state, instruction, waves, write_time, read_time;
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
                          std::uint32_t epoch, std::uint32_t instruction, int lane, const void* data, std::uint8_t* lacking);
  void check_dword(Access kind, Shadow& shadow, unsigned byte_mask, unsigned wave, std::uint32_t epoch,
                   std::uint32_t address, std::uint32_t instruction, int lane, const std::byte* data,
                   std::uint8_t* lacking);
  static void begin_epoch(Shadow& shadow, std::uint32_t epoch);
  void forget_reads(Shadow& shadow, unsigned byte_mask, unsigned wave, std::uint32_t address,
                    std::uint32_t instruction, int lane);
  bool accepts(FaultKind kind, std::uint32_t instruction) const {
    return accepted_ != nullptr && accepted_->has(kind, instruction);
  }
  static Violation race(const char* what, const Shadow& shadow, unsigned owner, std::uint32_t address, int lane);
  // Whether to go on all the same. If not, what was read has no value; without `lacking` this throws.
  bool refuse(Violation violation, std::uint32_t instruction, std::uint8_t* lacking);
  bool is_after_write(unsigned wave, unsigned writer, const Shadow& shadow, std::uint32_t address) const;
  // A wave of the mask whose reads nothing orders before; kWaves if there is none.
  unsigned unordered_reader(unsigned wave, unsigned mask, const Shadow& shadow) const;

  std::size_t size_;
  std::vector<std::byte> data_;
  Shadows shadow_;
  LdsOrder order_;
  std::array<LdsReader*, LdsOrder::kWaves> readers_{};
  std::optional<Violation> race_;
  const AcceptedFaults* accepted_ = nullptr;
  std::byte outside_[16];  // for accepted accesses outside: what is read there is 0
  bool single_ = false;
};

}  // namespace msa_ops::emulator::gfx950

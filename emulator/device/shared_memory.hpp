// The memory of one thread block, which knows which of its bytes have been written, and by whom they were last used.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <unordered_map>
#include <vector>

#include "ordering.hpp"
#include "program.hpp"
#include "remote_use.hpp"

namespace msa_ops::emulator {

enum class Strength { kWeak, kStrong };

class SharedMemory {
 public:
  // Its first byte is at address `base`, so that a null pointer is out of bounds where the chip reserves the start.
  SharedMemory(std::uint64_t base, std::size_t bytes, Ordering& ordering, const Program& program);

  void forget();  // every byte counts as never written and never used

  // Accesses of the warp that runs, through the generic proxy. The bytes at an address; Violation as for
  // GlobalMemory::at, if a byte to be read was never written, and if nothing orders the access after an earlier one.
  const std::byte* read(std::uint64_t address, std::size_t bytes, int lane, Strength strength = Strength::kWeak);
  // The same, but bytes that nothing has written are no fault here: `written` says whether all were.
  const std::byte* read(std::uint64_t address, std::size_t bytes, int lane, Strength strength, bool& written);
  // Weak accesses of several lanes beside each other, each of `alignment` bytes. Throw a Violation for any mistake,
  // without a lane, and also for bytes to be read that nothing has written.
  const std::byte* read_run(std::uint64_t address, std::size_t bytes, std::size_t alignment);
  std::byte* write_run(std::uint64_t address, std::size_t bytes, std::size_t alignment);
  std::optional<std::uint64_t> first_unwritten(std::uint64_t address, std::size_t bytes) const;
  void unwrite(std::uint64_t address, std::size_t bytes);  // what was written there has no value
  std::byte* write(std::uint64_t address, std::size_t bytes, int lane, Strength strength = Strength::kWeak);
  // An atomic: reads and writes. Where the bytes have no value the result has none, which is for the caller to see.
  // Without `reads` it replaces them, as an exchange does.
  std::byte* update(std::uint64_t address, std::size_t bytes, int lane, bool reads = true);

  // Order through a location, of strong accesses: Ordering::publish and take_up. Between blocks both must reach the
  // cluster.
  void publish(std::uint64_t address, bool is_release, Reach scope) {
    if (!is_release && !ordering_.has_fenced()) return;
    ordering_.publish(part_of(locations_[address], remote_use_.block(), scope != Reach::kBlock), is_release);
  }
  void take_up(std::uint64_t address, bool is_acquire, Reach scope) {
    if (locations_.empty()) return;
    const auto found = locations_.find(address);
    if (found == locations_.end()) return;
    for (const Part& part : found->second) {
      const bool reaches = part.block == remote_use_.block() || (part.is_wide && scope != Reach::kBlock);
      if (reaches) ordering_.take_up(part.known, is_acquire);
    }
  }

  // What asynchronous work of the warp that runs will do to a range until `access` ends (Ordering::of_work). To be
  // called when the work is issued; `alignment` is a power of two. `read` also wants the bytes written by now.
  // Gives the bytes.
  const std::byte* will_read(std::uint64_t address, std::size_t bytes, std::size_t alignment, AccessId access, int lane);
  void will_write(std::uint64_t address, std::size_t bytes, std::size_t alignment, AccessId access, int lane);
  // The same for reductions, which race with nothing of their kind: they read what is there.
  void will_update(std::uint64_t address, std::size_t bytes, std::size_t alignment, AccessId access, int lane);
  // The same for bytes that another block sends. Warps may send the same bytes by the same instruction, as long as the
  // source holds them; sent() is to be called when they have been written.
  void will_be_sent(std::uint64_t address, std::size_t bytes, AccessId access, int lane, const std::byte* source);
  void sent(std::uint64_t address, std::size_t bytes, const std::byte* source);
  // The bytes themselves, when the work is done; no check but the bounds.
  std::byte* bytes(std::uint64_t address, std::size_t bytes) { return &data_[offset(address, bytes, 1, "access", -1)]; }
  void mark_written(std::uint64_t address, std::size_t bytes);

  // ---- for mbarriers
  void become_mbarrier(std::uint64_t address, int lane);
  void cease_mbarrier(std::uint64_t address);

  std::uint64_t base() const { return base_; }
  std::size_t size() const { return data_.size(); }
  bool holds(std::uint64_t address) const { return address >= base_ && address - base_ < data_.size(); }
  Ordering& ordering() { return ordering_; }
  RemoteUse& remote_use() { return remote_use_; }

  // Of the words' records of use; for Ordering::compact.
  void collect(std::vector<AccessId>& live) const;
  void replace(const std::vector<AccessId>& now);

 private:
  // Last write and the reads since, of a word of four bytes.
  struct Cell {
    AccessId write = 0;
    AccessId reads = 0;
    std::uint32_t pc = 0;  // of the last write
  };
  static constexpr AccessId kBytewise = 0xffffffff;  // Cell::write of a word whose bytes have cells of their own

  std::size_t offset(std::uint64_t address, std::size_t bytes, std::size_t alignment, const char* what,
                     int lane) const {
    if (address % alignment != 0 || address < base_ || bytes > data_.size() || address - base_ > data_.size() - bytes) {
      refuse(address, bytes, alignment, what, lane);
    }
    return static_cast<std::size_t>(address - base_);
  }
  [[noreturn]] void refuse(std::uint64_t address, std::size_t bytes, std::size_t alignment, const char* what,
                           int lane) const;
  bool is_written(std::size_t start, std::size_t bytes) const {
    constexpr std::uint64_t kEight = 0x0101010101010101 * kWritten;
    const unsigned char* at = &written_[start];
    for (; bytes >= 8; bytes -= 8, at += 8) {
      std::uint64_t eight;
      std::memcpy(&eight, at, 8);
      if (eight != kEight) return false;
    }
    for (; bytes > 0; --bytes, ++at) {
      if (*at != kWritten) return false;
    }
    return true;
  }
  void want_written(std::size_t start, std::size_t bytes, int lane) const;
  // Atomics on bytes without a value leave them so; they may not meet bytes that nothing has written.
  void want_known(std::size_t start, std::size_t bytes, int lane) const;
  // `stores`: a weak store of a warp, which may race with what leaves the bytes as they are (SameValues).
  void note_remote() {
    if (remote_use_.is_remote(ordering_.current())) remote_use_.note();
  }
  template <bool writes, bool stores = false>
  void use(std::size_t start, std::size_t bytes, AccessId access, bool strong, bool asynchronous, int lane);
  template <bool writes, bool stores>
  void use_cell(Cell& cell, std::size_t at, std::size_t bytes, AccessId access, bool strong, bool asynchronous,
                int lane);
  bool leaves_doubt(AccessId earlier, Ordering::Verdict verdict, std::size_t at, std::size_t bytes) const;
  bool sends_the_same(AccessId earlier, std::size_t at, std::size_t bytes) const;
  Violation mistake(const Cell& cell, AccessId earlier, Ordering::Verdict verdict, std::size_t at, bool writes,
                    bool strong, bool asynchronous, bool earlier_writes, int lane) const;

  // What an access made of a word's cell: it makes the same of every equal cell. What is ordered stays so while the
  // access has the same number.
  struct Memo {
    AccessId access = 0;
    Cell before, after;
  };
  std::array<Memo, 2> memos_{};  // of reads, of writes

  struct Sent {
    std::size_t start, bytes;
    const std::byte* source;
  };
  std::vector<Sent> on_their_way_;
  const Sent* sending_ = nullptr;  // what will_be_sent() is about

  std::uint64_t base_;
  std::vector<std::byte> data_;
  // Of each byte: never written, written, or written from a register without a value.
  static constexpr unsigned char kWritten = 1, kWithoutValue = 2;
  std::vector<unsigned char> written_;
  std::vector<Cell> cells_;
  std::unordered_map<std::size_t, std::array<Cell, 4>> bytewise_;
  // What strong writes have left at an address, by the writers' block and whether it reaches others.
  struct Part {
    unsigned block;
    bool is_wide;
    Knowledge known{};
  };
  static Knowledge& part_of(std::vector<Part>& parts, unsigned block, bool is_wide);
  std::unordered_map<std::uint64_t, std::vector<Part>> locations_;
  Ordering& ordering_;
  const Program& program_;
  RemoteUse remote_use_;
};

}  // namespace msa_ops::emulator

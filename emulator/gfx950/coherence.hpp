// When stores to global memory become visible to other workgroups and devices: as late as the memory model allows.
//
// The host's memory always holds the newest bytes. What a reader may not see yet, or has in a cache, is kept here as
// the bytes that were there before, a line of 128 bytes at a time. Source of the rules: LLVM's memory model of gfx942,
// which is that of gfx950. A workgroup shares a cache; behind it the workgroups of one die (XCD) share another, which
// holds a store as soon as a wait has covered it. A workgroup on another die of the device (agent) sees a store that has
// sc1, or after buffer_wbl2 sc1 on its die; one on another device (system) needs sc0 sc1. Both hold when a wait has
// covered the store or the write-back. A load without these bits may find a line that its workgroup, or any of its die,
// has read before, until buffer_inv.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "../device/fault.hpp"
#include "progress.hpp"

namespace msa_ops::emulator::gfx950 {

constexpr std::uint64_t kNever = ~std::uint64_t{0};

// Lines that a cache holds, with the time since when.
class CachedLines {
 public:
  struct Times {
    std::uint64_t die, agent, system;  // what became visible there later is not in the line
  };
  // Reads a line: what is cached, or is now.
  Times touch(std::uint64_t line, std::uint64_t now);
  // The same of a cache that gets its lines from another one, and loses all of them at an invalidation.
  Times touch(std::uint64_t line, std::uint64_t now, CachedLines& behind);
  void invalidate(bool system, std::uint64_t now) {
    since_agent_ = now;
    if (system) since_system_ = now;
  }
  void forget();

 private:
  struct Entry {
    std::uint64_t line = 0;  // 0 is nobody's
    Times times{};
  };
  Entry& find(std::uint64_t line, bool& is_new);
  void grow();

  std::vector<Entry> entries_;
  std::size_t used_ = 0;
  std::uint64_t since_agent_ = 0, since_system_ = 0;
};

// A device's dies, each with a cache of its own. Workgroups go to them in turn.
constexpr unsigned kDies = 8;

class Coherence {
 public:
  enum class Scope : std::uint8_t { kWorkgroup, kAgent, kSystem };

  struct Group;
  struct WriteBack {
    const Group* group;
    std::uint64_t issued, done;
    Scope scope;
  };
  struct Die {
    CachedLines cache;
    bool has_written = false;
    std::vector<WriteBack> write_backs;  // of its workgroups, in order
  };
  // A workgroup of one device.
  struct Group {
    unsigned device = 0;
    unsigned die_number = 0;        // of the device
    Die* die = nullptr;
    std::uint64_t number = 0;       // of the workgroup, x fastest
    CachedLines vector_cache, scalar_cache;
    std::uint64_t newest_done = 0;     // of its stores at a scope, the last issued that is visible there
    std::uint64_t newest_reached = 0;  // of all its stores, the last issued that the die's cache has
    bool has_written = false;
  };

  // Why bytes that a load returned are not the newest ones.
  struct Unseen {
    enum class Why : std::uint8_t { kNothing, kNotWrittenBack, kNotWaitedFor, kCached } why = Why::kNothing;
    unsigned device = 0;
    std::uint64_t group = 0;
    std::uint32_t address = 0;  // of the store, in the text
    unsigned die = 0;
    bool other_device = false, scalar = false, same_die = false;
    FaultKind kind() const;
    std::string text() const;
  };

  struct Range {
    std::uint64_t address, bytes;
  };

  // `workgroups` of each device's launch; `uncached` memory goes past all caches.
  Coherence(std::vector<std::uint64_t> workgroups, std::vector<Range> uncached, std::optional<std::uint64_t> seed);

  Progress& progress() { return progress_; }
  Group* start(unsigned device, std::uint64_t number);
  void end(Group* group);
  void tick();  // a wave gets its turn

  static constexpr std::uint64_t kLine = 128;
  using Mask = std::array<std::uint64_t, 2>;  // a bit a byte of a line

  // Stores of one instruction to a line, or of several that nothing parts.
  struct Write {
    Group* group;
    std::uint64_t issued, done;    // done: when all of its scope see it, and the others of its die
    std::uint32_t instruction;
    Scope scope;
    bool atomic;
    Mask mask;
    std::array<std::byte, kLine> before;
  };

  // One instruction of vector memory that a wave issues. The instruction's lanes come one after the other.
  struct Access {
    Group* group;
    Scope scope;
    std::uint32_t instruction;  // address in the text
    bool atomic = false;
    std::uint64_t issued = 0;
    std::uint64_t line = 0;     // that the previous lane used
    CachedLines::Times times{};
    bool written = false;       // somebody has stored to it
    Unseen unseen{};            // of the last lane that is at fault
    std::vector<std::uint64_t> lines{};  // stored to
    std::uint64_t stored_line = 0;       // the last of them, and what was written to it
    std::vector<Write>* writes = nullptr;
  };
  Access begin(Group* group, Scope scope, std::uint32_t instruction, bool atomic = false);
  // Puts into `data` what the lane sees at `place`, where it holds the newest bytes already. A bit of the result for
  // each dword that must not be used.
  unsigned load(Access& access, const std::byte* place, unsigned bytes, void* data) {
    const auto address = reinterpret_cast<std::uint64_t>(place);
    if (address / kLine == access.line && (address + bytes - 1) / kLine == access.line && !access.written) return 0;
    return load_lines(access, address, bytes, static_cast<std::byte*>(data));
  }
  // Before the bytes at `place` change.
  void store(Access& access, const std::byte* place, unsigned bytes);
  // Before an atomic operation on `place`, which gets the bytes that it finds.
  void modify(Access& access, std::byte* place, unsigned bytes, int lane);
  // All lanes have stored. A number for `complete`, or 0 if nothing waits for it. `early`: the store is visible before
  // an older one of the same wave, which nobody has waited for, so that others should have a turn now.
  std::uint64_t finish(Access& access, const void* wave, bool& early);
  std::uint64_t write_back(Group* group, Scope scope, const void* wave);
  // `own`: at least the workgroup's cache.
  void invalidate(Group* group, Scope scope, bool own);
  void complete(std::uint64_t operation);
  // The same for a store that nobody will wait for any more, unless others need not see it yet.
  void abandon(std::uint64_t operation);
  // Throws a Violation if bytes that a scalar load gets are not the newest ones.
  void load_scalars(Group* group, const std::byte* place, unsigned bytes);
  void invalidate_scalars(Group* group) { group->scalar_cache.invalidate(true, ++now_); }

 private:
  struct Pending {
    std::uint64_t operation;
    Group* group;
    const void* wave;
    bool is_write_back, is_plain;  // a store without scope
    std::uint64_t tick;
    std::vector<std::uint64_t> lines;
  };
  bool is_uncached(std::uint64_t address) const;
  bool maybe_written(std::uint64_t line) const { return (filter_[line / 64 % filter_.size()] >> line % 64 & 1) != 0; }
  std::uint64_t visible_at(const Write& write, const Group& reader) const;
  unsigned load_lines(Access& access, std::uint64_t address, unsigned bytes, std::byte* data);
  // The bytes of a line from `first` on as a reader sees them; true if some must not be used.
  enum class Reader { kLoad, kAtomic, kScalar };
  unsigned view(Reader reader, const Group& group, Scope scope, CachedLines::Times times, std::uint64_t line,
                unsigned first, unsigned bytes, std::byte* data, Unseen& unseen) const;
  void record(Access& access, std::uint64_t line, unsigned first, unsigned bytes);
  // Whether an atomic operation finds nothing in the line but what other ones made, which it sees.
  bool all_atomic(const Access& access, std::uint64_t line) const;
  void finish_one(std::size_t index);

  Progress progress_;
  std::vector<std::uint64_t> left_;       // workgroups of a device that have not ended
  std::vector<std::uint64_t> ended_at_;   // of a device: then everything is written back
  std::vector<bool> shares_dies_;         // of a device: more workgroups than dies
  std::vector<std::unique_ptr<std::array<Die, kDies>>> dies_;
  std::vector<Range> uncached_;
  std::vector<std::unique_ptr<Group>> groups_;
  std::vector<Group*> idle_;
  std::unordered_map<std::uint64_t, std::vector<Write>> lines_;
  std::vector<std::uint64_t> filter_;
  std::vector<Pending> pending_;
  std::unordered_map<std::uint32_t, unsigned> early_;  // how often an instruction was let pass an older one
  std::uint64_t now_ = 1, tick_ = 0;
  unsigned first_die_ = 0;  // of workgroup 0
  bool random_;
  std::mt19937_64 generator_;
};

}  // namespace msa_ops::emulator::gfx950

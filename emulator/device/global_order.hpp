// Races in global memory: who used its bytes last in a launch, on all devices that run together.
//
// The unit is a byte, kept for words of four bytes where all are alike. Only memory that somebody may write is watched:
// last writes, and up to a few reads since. Its memory is bounded: what does not fit is not watched.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ordering.hpp"
#include "program.hpp"

namespace msa_ops::emulator {

// How an access is made.
struct Manner {
  bool strong = false;
  Reach scope = Reach::kSystem;  // of a strong one
  AccessId work = 0;  // asynchronous work that does it (Ordering::of_work); 0: the present warp, now
  bool read_only = false;  // through a cache that need not see what the launch itself writes
};

class GlobalOrder {
 public:
  using Ranges = std::vector<std::pair<std::uint64_t, std::uint64_t>>;  // first address and one behind the last

  // Watches these ranges. With `shared` threads of the host use it at once.
  GlobalOrder(Ranges watched, std::size_t most_bytes, bool shared);

  // A cluster that has started, of one warp size and block size.
  struct Cluster {
    const Program* program = nullptr;
    unsigned device = 0;
    std::array<unsigned, 3> first_block{}, shape{1, 1, 1};
    unsigned warps_a_block = 1;
    const void* launch = nullptr;
    bool is_storing = false;  // it has said which bytes its present instruction stores, and may not have stored them
  };
  std::uint32_t add(const Cluster& cluster);  // its number
  // The last writes of each word or byte of a range that has any: function(Id, address).
  template <typename Function>
  void for_writes(std::uint64_t address, std::size_t bytes, Function function);

 private:
  friend class GlobalWatch;
  using Id = std::uint32_t;  // 0: none
  struct Record {
    std::uint32_t cluster = 0;
    Actor actor = 0;
    Clock clock = 0;
    std::uint32_t pc = 0;
    Id next = 0;
    std::uint16_t warp = 0;  // of the cluster
    Reach scope = Reach::kSystem;
    bool strong = false, asynchronous = false;
  };
  struct Cell {
    Id write = 0, reads = 0;
  };
  static constexpr Id kBytewise = 0xffffffff;  // Cell::write of a word whose bytes have cells of their own
  static constexpr std::size_t kPage = 1024;   // bytes of memory
  struct Page {
    std::array<Cell, kPage / 4> cells{};
  };
  // What strong writes have left at an address, by how far it reaches.
  struct Part {
    Reach reach;
    std::uint32_t device, cluster, block;  // of the writers; kSeveral
    Elsewhere::Pointer known;
    bool told = false;  // Ordering::telling
  };
  static constexpr std::uint32_t kSeveral = 0xffffffff;

  Page* page(std::uint64_t number, bool make);
  void compact();  // forgets records that no cell has

  const Ranges watched_;
  const std::size_t most_pages_;
  const bool is_shared_;
  std::mutex mutex_;
  std::vector<Cluster> clusters_{Cluster{}};
  std::vector<Record> records_{Record{}};
  std::size_t crowded_ = std::size_t{1} << 20;
  std::uint64_t version_ = 0;  // of the numbers of records
  std::unordered_map<std::uint64_t, std::unique_ptr<Page>> pages_;
  std::unordered_map<std::uint64_t, std::array<Cell, 4>> bytewise_;  // by address / 4
  std::unordered_map<std::uint64_t, std::vector<Part>> locations_;
  Elsewhere::Pointer released_maps_;  // what those knew who have released tensor maps
};

// What one cluster does with it. All of its accesses are of the present warp (Ordering).
class GlobalWatch {
 public:
  GlobalWatch(GlobalOrder* order, Ordering& ordering) : order_(order), ordering_(ordering) {}

  void start(const GlobalOrder::Cluster& cluster);
  bool is_on() const { return order_ != nullptr; }
  std::uint32_t number() const { return own_; }  // of the cluster; 0: nothing is watched

  // An access; Violation of the lane if nothing orders it after an earlier one, or not with the proxy fence it needs. A
  // weak store of bytes that others have stored is no mistake if it leaves them as they are (Ordering::same_values).
  void use(std::uint64_t address, std::size_t bytes, bool write, const Manner& manner, int lane) {
    if (order_ != nullptr && is_watched(address, bytes)) use_watched(address, bytes, write, manner, lane);
  }
  // Order through a location. A strong write hands on what the warp knows, a strong read takes it up, once it has been
  // done (settle), since others may write meanwhile. `replaces`: a store, not an atomic.
  void publish(std::uint64_t address, bool is_release, bool replaces, Reach scope);
  void take_up(std::uint64_t address, bool is_acquire, Reach scope) {
    if (order_ != nullptr && (late_.empty() || late_.back().address != address)) late_.push_back({address, is_acquire, scope});
  }
  // ---- tensor maps in global memory, which copies read through a proxy of their own
  void use_map(std::uint64_t address, std::size_t bytes, int lane);  // a copy by the present warp
  void release_maps();
  void acquire_map(std::uint64_t address);
  // After each instruction.
  void settle() {
    if (is_storing_) end_stores();
    if (!late_.empty()) settle_all();
  }

 private:
  using Id = GlobalOrder::Id;
  using Cell = GlobalOrder::Cell;
  using Record = GlobalOrder::Record;
  struct Late {
    std::uint64_t address;
    bool is_acquire;
    Reach scope;
  };
  struct Known {  // the number of a record
    Record record;
    std::uint64_t version = 0;
    Id id = 0;
  };
  struct MapFence {
    Actor actor;
    Clock clock;
    Elsewhere::Pointer known;  // by who made it
  };
  struct Memo {  // what an access has made of a cell, it makes of every equal one
    Id access = 0;
    Cell before, after;
  };

  bool is_watched(std::uint64_t address, std::size_t bytes) {
    if (address >= first_ && address + bytes <= end_) return watched_here_;
    return look_up(address, bytes);
  }
  bool look_up(std::uint64_t address, std::size_t bytes);
  void use_watched(std::uint64_t address, std::size_t bytes, bool write, const Manner& manner, int lane);
  template <bool writes>
  void use_cell(Cell& cell, std::uint64_t address, std::size_t bytes, Id access, int lane);
  template <bool writes>
  void use_word(Cell& cell, std::uint64_t address, std::size_t bytes, Id access, int lane);
  void settle_all();
  void begin_stores(std::unique_lock<std::mutex>& held, std::uint64_t address, std::size_t bytes);
  void end_stores();
  bool others_store(std::uint64_t address, std::size_t bytes) const;
  Id id_of(const Manner& manner);
  Id push(const Record& record);
  Id add(Id before, Id one, bool are_reads);
  enum class Verdict { kOrdered, kRace, kUnfenced };
  Verdict judge(Id all, const Record& access, bool earlier_writes, Id& culprit) const;
  Verdict judge_value(Id writes, const Record& access, Id& culprit) const;
  bool plain(Id all) const;
  bool reaches(const Record& from, const Record& to) const;
  unsigned block_of(const Record& record) const;  // in its cluster
  void check_read_only(std::uint64_t address, std::size_t bytes, int lane);
  Violation mistake(Verdict verdict, Id culprit, const Record& access, bool writes, bool earlier_writes,
                    std::uint64_t address, int lane) const;
  std::unique_lock<std::mutex> lock() const;

  GlobalOrder* order_;
  Ordering& ordering_;
  std::uint32_t own_ = 0;  // the cluster's number
  std::uint64_t version_ = 0;  // of records, as far as memos know
  unsigned device_ = 0, warps_a_block_ = 1;
  std::uint64_t first_ = 1, end_ = 0;  // of the last address that was looked up
  bool watched_here_ = false;
  std::uint64_t page_number_ = ~std::uint64_t{0};
  GlobalOrder::Page* page_ = nullptr;
  std::array<Known, 16> known_{};
  std::array<Memo, 2> memos_{};
  std::vector<Late> late_;
  bool is_storing_ = false;
  std::unordered_map<std::uint64_t, std::vector<MapFence>> map_fences_;
};

}  // namespace msa_ops::emulator

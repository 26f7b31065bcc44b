#include "global_order.hpp"

#include <algorithm>
#include <thread>

namespace msa_ops::emulator {
namespace {

constexpr unsigned kMostReads = 2, kMostWrites = 8;  // that a cell remembers
constexpr unsigned kMostLooks = 10000;               // two clusters may wait for each other

}  // namespace

GlobalOrder::GlobalOrder(Ranges watched, std::size_t most_bytes, bool shared)
    : watched_(std::move(watched)), most_pages_(most_bytes / sizeof(Page)), is_shared_(shared) {}

std::uint32_t GlobalOrder::add(const Cluster& cluster) {
  const std::lock_guard<std::mutex> lock(mutex_);
  clusters_.push_back(cluster);
  return static_cast<std::uint32_t>(clusters_.size() - 1);
}

GlobalOrder::Page* GlobalOrder::page(std::uint64_t number, bool make) {
  const auto found = pages_.find(number);
  if (found != pages_.end()) return found->second.get();
  if (!make || pages_.size() >= most_pages_) return nullptr;
  return (pages_[number] = std::make_unique<Page>()).get();
}

void GlobalOrder::compact() {
  std::vector<Id> now(records_.size(), 0);
  const auto for_cells = [&](auto function) {
    for (auto& [number, page] : pages_) {
      for (Cell& cell : page->cells) function(cell);
    }
    for (auto& [word, cells] : bytewise_) {
      for (Cell& cell : cells) function(cell);
    }
  };
  for_cells([&](const Cell& cell) {
    if (cell.write != kBytewise) now[cell.write] = 1;
    now[cell.reads] = 1;
  });
  // The rest of a list is older than its first.
  for (std::size_t id = records_.size(); id-- > 1;) {
    if (now[id] != 0 && records_[id].next != 0) now[records_[id].next] = 1;
  }
  std::vector<Record> kept{Record{}};
  now[0] = 0;
  for (std::size_t id = 1; id < records_.size(); ++id) {
    if (now[id] == 0) continue;
    Record record = records_[id];
    record.next = now[record.next];
    kept.push_back(record);
    now[id] = static_cast<Id>(kept.size() - 1);
  }
  for_cells([&](Cell& cell) {
    if (cell.write != kBytewise) cell.write = now[cell.write];
    cell.reads = now[cell.reads];
  });
  records_ = std::move(kept);
  crowded_ = std::max(crowded_, 2 * records_.size());
  ++version_;
}

void GlobalWatch::start(const GlobalOrder::Cluster& cluster) {
  if (order_ == nullptr) return;
  own_ = order_->add(cluster);
  device_ = cluster.device;
  warps_a_block_ = cluster.warps_a_block;
  known_.fill({});
  memos_.fill({});
  late_.clear();
  is_storing_ = false;
  map_fences_.clear();
}

std::unique_lock<std::mutex> GlobalWatch::lock() const {
  return order_->is_shared_ ? std::unique_lock<std::mutex>(order_->mutex_) : std::unique_lock<std::mutex>();
}

bool GlobalWatch::look_up(std::uint64_t address, std::size_t bytes) {
  const auto& all = order_->watched_;
  const auto next = std::upper_bound(all.begin(), all.end(), address,
                                     [](std::uint64_t wanted, const auto& range) { return wanted < range.first; });
  first_ = next == all.begin() ? 0 : (next - 1)->second;
  end_ = next == all.end() ? ~std::uint64_t{0} : next->first;
  watched_here_ = next != all.begin() && address < (next - 1)->second;
  if (watched_here_) first_ = (next - 1)->first, end_ = (next - 1)->second;
  return watched_here_ && address + bytes <= end_;
}

// ---- records

GlobalWatch::Id GlobalWatch::push(const Record& record) {
  order_->records_.push_back(record);
  return static_cast<Id>(order_->records_.size() - 1);
}

GlobalWatch::Id GlobalWatch::id_of(const Manner& manner) {
  Record made;
  made.cluster = own_;
  made.strong = manner.strong;
  made.scope = manner.scope;
  if (manner.work != 0) {
    const Ordering::Record& work = ordering_.record(manner.work);
    made.actor = work.actor;
    made.clock = work.clock;
    made.warp = static_cast<std::uint16_t>(work.warp);
    made.pc = work.pc;
    made.asynchronous = work.asynchronous;
  } else {
    made.actor = ordering_.actor(ordering_.current());
    made.clock = ordering_.clock();
    made.warp = static_cast<std::uint16_t>(ordering_.current());
    made.pc = ordering_.pc();
  }
  Known& known = known_[(made.pc * 5 + made.warp) % known_.size()];
  const Record& old = known.record;
  if (known.id != 0 && known.version == order_->version_ && old.actor == made.actor && old.clock == made.clock &&
      old.pc == made.pc && old.warp == made.warp && old.strong == made.strong && old.scope == made.scope) {
    return known.id;
  }
  const Id id = push(made);
  known = {made, order_->version_, id};
  return id;
}

unsigned GlobalWatch::block_of(const Record& record) const {
  return record.warp / order_->clusters_[record.cluster].warps_a_block;
}

// Whether a strong access can order another one: it does if both do.
bool GlobalWatch::reaches(const Record& from, const Record& to) const {
  switch (from.scope) {
    case Reach::kSystem: return true;
    case Reach::kDevice: return order_->clusters_[from.cluster].device == order_->clusters_[to.cluster].device;
    case Reach::kCluster: return from.cluster == to.cluster;
    case Reach::kBlock: return from.cluster == to.cluster && block_of(from) == block_of(to);
  }
  return false;
}

GlobalWatch::Verdict GlobalWatch::judge(Id all, const Record& access, bool earlier_writes, Id& culprit) const {
  for (Id id = all; id != 0; id = order_->records_[id].next) {
    const Record& one = order_->records_[id];
    culprit = id;
    if (one.strong && access.strong && reaches(one, access) && reaches(access, one)) continue;
    // Lanes and warps that start the same copy, by one instruction.
    if (one.asynchronous && access.asynchronous && one.cluster == access.cluster && one.pc == access.pc &&
        block_of(one) == block_of(access)) {
      continue;
    }
    if (!ordering_.knows(one.cluster, one.actor, one.clock)) return Verdict::kRace;
    if (access.asynchronous && earlier_writes && !one.asynchronous &&
        !ordering_.knows_fenced(one.cluster, one.actor, one.clock)) {
      return Verdict::kUnfenced;
    }
  }
  return Verdict::kOrdered;
}

// Of writes that left the same value one that is ordered is enough.
GlobalWatch::Verdict GlobalWatch::judge_value(Id writes, const Record& access, Id& culprit) const {
  const Verdict all = judge(writes, access, true, culprit);
  if (all == Verdict::kOrdered || order_->records_[writes].next == 0 || !plain(writes)) return all;
  for (Id id = writes; id != 0; id = order_->records_[id].next) {
    const Record& one = order_->records_[id];
    if (ordering_.knows(one.cluster, one.actor, one.clock) &&
        (!access.asynchronous || ordering_.knows_fenced(one.cluster, one.actor, one.clock))) {
      return Verdict::kOrdered;
    }
  }
  return all;
}

bool GlobalWatch::plain(Id all) const {
  for (Id id = all; id != 0; id = order_->records_[id].next) {
    const Record& one = order_->records_[id];
    if (one.strong || one.asynchronous) return false;
  }
  return true;
}

// The set of `before` and `one`, without those that `one` follows anyway.
GlobalWatch::Id GlobalWatch::add(Id before, Id one, bool are_reads) {
  if (before == 0 || before == one) return one;
  const Record added = order_->records_[one];
  if (order_->records_[before].next == 0) {
    const Record& old = order_->records_[before];
    if (ordering_.knows(old.cluster, old.actor, old.clock)) return one;
  }
  Id list = 0;
  unsigned count = 1;
  for (Id id = before; id != 0 && count < (are_reads ? kMostReads : kMostWrites); id = order_->records_[id].next) {
    Record old = order_->records_[id];
    const bool same = old.cluster == added.cluster && old.actor == added.actor && old.strong == added.strong;
    if (same || ordering_.knows(old.cluster, old.actor, old.clock)) continue;
    old.next = list;
    list = push(old);
    ++count;
  }
  if (list == 0) return one;
  Record copy = added;
  copy.next = list;
  return push(copy);
}

// ---- accesses

Violation GlobalWatch::mistake(Verdict verdict, Id culprit, const Record& access, bool writes, bool earlier_writes,
                               std::uint64_t address, int lane) const {
  const Record& one = order_->records_[culprit];
  const GlobalOrder::Cluster& cluster = order_->clusters_[one.cluster];
  const unsigned rank = block_of(one);
  const auto& shape = cluster.shape;
  const unsigned block[3] = {cluster.first_block[0] + rank % shape[0],
                             cluster.first_block[1] + rank / shape[0] % shape[1],
                             cluster.first_block[2] + rank / shape[0] / shape[1]};
  std::string text = std::string(access.asynchronous ? "asynchronous " : "") + (writes ? "write" : "read") +
                     " of global memory" + (verdict == Verdict::kUnfenced ? " after the " : " that nothing orders after the ") +
                     (one.asynchronous ? "asynchronous " : "") + (earlier_writes ? "write" : "read") + " of ";
  if (cluster.device != device_) text += "device " + std::to_string(cluster.device) + ", ";
  text += "block (" + std::to_string(block[0]) + ", " + std::to_string(block[1]) + ", " + std::to_string(block[2]) +
          "), warp " + std::to_string(one.warp % cluster.warps_a_block);
  if (const std::string line = cluster.program->where(one.pc); !line.empty()) text += " at " + line;
  if (one.strong && access.strong) text += ", beyond the scope of one of them";
  if (verdict == Verdict::kUnfenced) {
    return {FaultKind::kProxy, text + " without fence.proxy.async between them", lane, address};
  }
  return {FaultKind::kRace, text, lane, address};
}

template <bool writes>
void GlobalWatch::use_cell(Cell& cell, std::uint64_t address, std::size_t bytes, Id access, int lane) {
  const Record record = order_->records_[access];
  bool doubtful = false;
  Id culprit = 0;
  const auto judged = [&](Verdict verdict, Id earlier, bool earlier_writes) {
    if (verdict == Verdict::kOrdered) return;
    Violation found = mistake(verdict, culprit, record, writes, earlier_writes, address, lane);
    const bool may_be_same =
        writes && verdict == Verdict::kRace && !record.strong && !record.asynchronous && plain(earlier) &&
        (earlier_writes || doubtful);  // who stores after a store that it knows is not one of several
    if (!may_be_same) throw Violation(std::move(found));
    ordering_.same_values().doubt(reinterpret_cast<const std::byte*>(address), nullptr, 0, bytes, std::move(found));
    doubtful = true;
  };
  if (cell.write != 0 && cell.write != access) {
    judged(writes ? judge(cell.write, record, true, culprit) : judge_value(cell.write, record, culprit), cell.write, true);
  }
  if (writes) {
    if (cell.reads != 0 && cell.reads != access) judged(judge(cell.reads, record, false, culprit), cell.reads, false);
    const bool beside = doubtful || (record.strong && cell.write != 0 && order_->records_[cell.write].strong);
    cell.write = beside ? add(cell.write, access, false) : access;
    if (!doubtful) cell.reads = 0;
  } else if (cell.reads != access) {
    cell.reads = add(cell.reads, access, true);
  }
}

template <bool writes>
void GlobalWatch::use_word(Cell& cell, std::uint64_t address, std::size_t bytes, Id access, int lane) {
  const std::uint64_t word = address / 4;
  if (bytes == 4 && cell.write != GlobalOrder::kBytewise) {
    Memo& memo = memos_[writes ? 1 : 0];
    if (memo.access == access && cell.write == memo.before.write && cell.reads == memo.before.reads) {
      cell = memo.after;
      return;
    }
    const Cell before = cell;
    use_cell<writes>(cell, address, 4, access, lane);
    if (ordering_.same_values().empty()) memo = {access, before, cell};
    return;
  }
  if (cell.write != GlobalOrder::kBytewise) {
    // The whole word has one past; it keeps it if this access changes nothing.
    if (writes ? cell.write == access && cell.reads == 0 : cell.reads == access && cell.write == 0) return;
    order_->bytewise_[word] = {cell, cell, cell, cell};
    cell = {GlobalOrder::kBytewise, 0};
  }
  auto& parts = order_->bytewise_.at(word);
  for (std::uint64_t at = address; at < address + bytes; ++at) use_cell<writes>(parts[at % 4], at, 1, access, lane);
  const Cell& first = parts[0];
  if (std::all_of(parts.begin(), parts.end(), [&](const Cell& one) {
        return one.write == first.write && one.reads == first.reads;
      })) {
    cell = first;
    order_->bytewise_.erase(word);
  }
}

// ---- stores of clusters on other threads of the host: whether one changes bytes is seen when the others are done

bool GlobalWatch::others_store(std::uint64_t address, std::size_t bytes) const {
  const auto by_another = [&](Id all) {
    for (Id id = all; id != 0; id = order_->records_[id].next) {
      const Record& one = order_->records_[id];
      if (one.cluster != own_ && order_->clusters_[one.cluster].is_storing) return true;
    }
    return false;
  };
  for (std::uint64_t word = address / 4; word <= (address + bytes - 1) / 4; ++word) {
    const GlobalOrder::Page* page = order_->page(word * 4 / GlobalOrder::kPage, false);
    if (page == nullptr) continue;
    const Cell& cell = page->cells[word % page->cells.size()];
    if (cell.write != GlobalOrder::kBytewise) {
      if (by_another(cell.write)) return true;
      continue;
    }
    for (const Cell& part : order_->bytewise_.at(word)) {
      if (by_another(part.write)) return true;
    }
  }
  return false;
}

void GlobalWatch::begin_stores(std::unique_lock<std::mutex>& held, std::uint64_t address, std::size_t bytes) {
  for (unsigned looks = 0; looks < kMostLooks && others_store(address, bytes); ++looks) {
    held.unlock();
    std::this_thread::yield();
    held.lock();
  }
  order_->clusters_[own_].is_storing = is_storing_ = true;
}

void GlobalWatch::end_stores() {
  const auto held = lock();
  order_->clusters_[own_].is_storing = is_storing_ = false;
}

void GlobalWatch::use_watched(std::uint64_t address, std::size_t bytes, bool write, const Manner& manner, int lane) {
  auto held = lock();
  if (order_->is_shared_ && write && !manner.strong && manner.work == 0) begin_stores(held, address, bytes);
  if (order_->records_.size() > order_->crowded_) order_->compact();
  if (version_ != order_->version_) memos_.fill({});
  version_ = order_->version_;
  const Id access = id_of(manner);
  for (std::uint64_t at = address, end = address + bytes; at < end;) {
    const std::uint64_t number = at / GlobalOrder::kPage;
    if (number != page_number_ || page_ == nullptr) {
      page_ = order_->page(number, true);
      page_number_ = number;
    }
    const std::uint64_t page_end = std::min<std::uint64_t>(end, (number + 1) * GlobalOrder::kPage);
    if (page_ == nullptr) {
      at = page_end;
      continue;
    }
    while (at < page_end) {
      const std::uint64_t next = std::min<std::uint64_t>(page_end, at / 4 * 4 + 4);
      Cell& cell = page_->cells[at / 4 % page_->cells.size()];
      if (write) use_word<true>(cell, at, next - at, access, lane);
      else use_word<false>(cell, at, next - at, access, lane);
      at = next;
    }
  }
  if (manner.read_only) check_read_only(address, bytes, lane);
}

// ---- tensor maps

void GlobalWatch::release_maps() {
  if (order_ == nullptr) return;
  const auto held = lock();
  order_->released_maps_ = Elsewhere::join(order_->released_maps_, ordering_.known_to_all());
  ordering_.tick();
}

void GlobalWatch::acquire_map(std::uint64_t address) {
  if (order_ == nullptr) return;
  const Actor actor = ordering_.actor(ordering_.current());
  auto& fences = map_fences_[address];
  fences.erase(std::remove_if(fences.begin(), fences.end(), [&](const MapFence& one) { return one.actor == actor; }),
               fences.end());
  fences.push_back({actor, ordering_.clock(), ordering_.known_to_all()});
  ordering_.tick();
}

template <typename Function>
void GlobalOrder::for_writes(std::uint64_t address, std::size_t bytes, Function function) {
  for (std::uint64_t at = address / 4 * 4; at < address + bytes; at += 4) {
    const Page* found = page(at / kPage, false);
    if (found == nullptr) continue;
    const Cell& cell = found->cells[at / 4 % found->cells.size()];
    if (cell.write != kBytewise) {
      if (cell.write != 0) function(cell.write, at);
      continue;
    }
    const auto& parts = bytewise_.at(at / 4);
    for (std::uint64_t byte = std::max(at, address); byte < std::min(at + 4, address + bytes); ++byte) {
      if (parts[byte % 4].write != 0) function(parts[byte % 4].write, byte);
    }
  }
}

void GlobalWatch::check_read_only(std::uint64_t address, std::size_t bytes, int lane) {
  const void* own = order_->clusters_[own_].launch;
  order_->for_writes(address, bytes, [&](Id writes, std::uint64_t where) {
    for (Id id = writes; id != 0; id = order_->records_[id].next) {
      const Record& write = order_->records_[id];
      const GlobalOrder::Cluster& writer = order_->clusters_[write.cluster];
      if (writer.launch != own) continue;
      throw Violation{FaultKind::kProxy,
                      "ld.global.nc of what this launch itself wrote, at " + writer.program->where(write.pc) +
                          ": its cache need not see that; what it reads must be read only for the whole launch",
                      lane, where};
    }
  });
}

void GlobalWatch::use_map(std::uint64_t address, std::size_t bytes, int lane) {
  if (order_ == nullptr || !is_watched(address, bytes)) return;
  use_watched(address, bytes, false, {}, lane);
  const auto held = lock();
  const auto covers = [](const Elsewhere::Pointer& all, const Record& write) {
    const auto* there = all != nullptr ? all->find(write.cluster) : nullptr;
    return there != nullptr && at(there->seen, write.actor) >= write.clock;
  };
  const auto fences = map_fences_.find(address);
  const auto check = [&](Id writes, std::uint64_t where) {
    for (Id id = writes; id != 0; id = order_->records_[id].next) {
      const Record& write = order_->records_[id];
      const auto fail = [&](const std::string& missing) {
        const std::string line = order_->clusters_[write.cluster].program->where(write.pc);
        throw Violation{FaultKind::kProxy,
                        "a copy by a tensor map that was written at " + line + ", without " + missing,
                        lane, where};
      };
      if (!covers(order_->released_maps_, write)) fail("fence.proxy.tensormap::generic.release after the write");
      bool fenced = false;
      for (std::size_t i = 0; fences != map_fences_.end() && i < fences->second.size(); ++i) {
        const MapFence& one = fences->second[i];
        fenced = fenced || (ordering_.seen(one.actor, one.clock) && covers(one.known, write));
      }
      if (!fenced) fail("fence.proxy.tensormap::generic.acquire of its address before the copy");
    }
  };
  order_->for_writes(address, bytes, check);
}

// ---- order through locations

void GlobalWatch::publish(std::uint64_t address, bool is_release, bool replaces, Reach scope) {
  if (order_ == nullptr) return;
  const auto held = lock();
  const auto found = order_->locations_.find(address);
  // With several threads a reader may take up what an earlier store left after this one has come.
  if (replaces && !order_->is_shared_ && found != order_->locations_.end()) found->second.clear();
  const std::uint32_t block = own_ * 16 + ordering_.current() / warps_a_block_;
  const auto leave = [&](Reach reach, const Elsewhere::Pointer& known, bool told) {
    auto& parts = order_->locations_[address];
    for (GlobalOrder::Part& part : parts) {
      if (part.reach != reach || part.told != told || part.device != device_ || (reach <= Reach::kCluster && part.cluster != own_) ||
          (reach == Reach::kBlock && part.block != block)) {
        continue;
      }
      part.known = Elsewhere::join(part.known, known);
      if (part.cluster != own_) part.cluster = GlobalOrder::kSeveral;
      if (part.block != block) part.block = GlobalOrder::kSeveral;
      return;
    }
    parts.push_back({reach, device_, own_, block, known, told});
  };
  if (const Elsewhere::Pointer told = ordering_.telling(false)) leave(std::min(scope, Reach::kDevice), told, true);
  if (const Elsewhere::Pointer told = ordering_.telling(true)) leave(scope, told, true);
  if (is_release) {
    leave(scope, ordering_.known_to_all(), false);
    ordering_.tick();
    return;
  }
  Elsewhere::Pointer last;
  for (unsigned level = static_cast<unsigned>(scope) + 1; level-- > 0;) {
    const Elsewhere::Pointer& known = ordering_.before_fence(static_cast<Reach>(level));
    if (known == nullptr || known == last) continue;
    leave(static_cast<Reach>(level), known, false);
    last = known;
  }
}

void GlobalWatch::settle_all() {
  const auto held = lock();
  const std::uint32_t block = own_ * 16 + ordering_.current() / warps_a_block_;
  for (const Late& one : late_) {
    const auto found = order_->locations_.find(one.address);
    if (found == order_->locations_.end()) continue;
    for (const GlobalOrder::Part& part : found->second) {
      const Reach needed = part.block == block      ? Reach::kBlock
                           : part.cluster == own_   ? Reach::kCluster
                           : part.device == device_ ? Reach::kDevice
                                                    : Reach::kSystem;
      if (part.reach < needed || one.scope < needed) continue;
      const Elsewhere::Pointer known = part.device == device_ ? part.known : Elsewhere::for_others(part.known);
      if (one.is_acquire || part.told) ordering_.learn(known);
      else ordering_.learn_at_fence(known, needed);
    }
  }
  late_.clear();
}

}  // namespace msa_ops::emulator

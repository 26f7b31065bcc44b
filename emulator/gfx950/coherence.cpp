#include "coherence.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace msa_ops::emulator::gfx950 {
namespace {

constexpr std::size_t kMostLines = 32'768;    // 4 MB, what the L2 of an XCD holds
constexpr std::size_t kMostWrites = 16;       // of a line, whose old ones are forgotten once everybody may see them
constexpr std::uint64_t kPatience = 64;       // turns after which a store that nobody waits for is done all the same
constexpr std::size_t kMostPending = 256;
constexpr unsigned kOvertakings = 16;         // of an instruction

std::size_t hash_of(std::uint64_t line) { return static_cast<std::size_t>(line * 0x9e3779b97f4a7c15ULL >> 20); }

}  // namespace

// ---- caches

void CachedLines::forget() {
  std::fill(entries_.begin(), entries_.end(), Entry{});
  used_ = 0;
}

void CachedLines::grow() {
  if (entries_.size() >= 2 * kMostLines) {
    forget();  // lines may leave a cache at any time
    return;
  }
  std::vector<Entry> old = std::move(entries_);
  entries_.assign(std::max<std::size_t>(64, 2 * old.size()), Entry{});
  for (const Entry& entry : old) {
    if (entry.line == 0) continue;
    std::size_t at = hash_of(entry.line) & (entries_.size() - 1);
    while (entries_[at].line != 0) at = (at + 1) & (entries_.size() - 1);
    entries_[at] = entry;
  }
}

CachedLines::Entry& CachedLines::find(std::uint64_t line, bool& is_new) {
  if (2 * used_ >= entries_.size()) grow();
  std::size_t at = hash_of(line) & (entries_.size() - 1);
  while (entries_[at].line != 0 && entries_[at].line != line) at = (at + 1) & (entries_.size() - 1);
  Entry& entry = entries_[at];
  is_new = entry.line == 0;
  if (is_new) {
    entry.line = line;
    ++used_;
  }
  return entry;
}

CachedLines::Times CachedLines::touch(std::uint64_t line, std::uint64_t now, CachedLines& behind) {
  bool is_new = false;
  Entry& entry = find(line, is_new);
  if (is_new || entry.times.die < since_agent_) {
    entry.times = behind.touch(line, now);
    entry.times.die = now;
  }
  return entry.times;
}

CachedLines::Times CachedLines::touch(std::uint64_t line, std::uint64_t now) {
  bool is_new = false;
  Entry& entry = find(line, is_new);
  if (is_new) entry.times = {now, now, now};
  if (entry.times.agent < since_agent_) entry.times.agent = now;
  if (entry.times.system < since_system_) entry.times.system = now;
  return entry.times;
}

// ---- messages

FaultKind Coherence::Unseen::kind() const {
  switch (why) {
    case Why::kNotWrittenBack: return FaultKind::kMissingWriteBack;
    case Why::kCached: return FaultKind::kMissingInvalidation;
    default: return FaultKind::kMissingWait;
  }
}

std::string Coherence::Unseen::text() const {
  char store[96];
  std::snprintf(store, sizeof(store), "the store at 0x%x of workgroup %llu", address,
                static_cast<unsigned long long>(group));
  const std::string who = std::string(store) + (other_device ? " of device " + std::to_string(device)
                                                             : " on XCD " + std::to_string(die));
  if (scalar) return "may find an old line in the scalar cache; " + who + " is newer";
  const std::string bits = other_device ? "sc0 sc1" : "sc1";
  if (same_die && why == Why::kCached)
    return "may find an old line in the workgroup's cache; " + who + ", the same, is newer; no buffer_inv since";
  switch (why) {
    case Why::kNotWrittenBack:
      return "does not see " + who + ", which has neither " + bits + " nor a buffer_wbl2 " + bits +
             " behind it that was waited for";
    case Why::kNotWaitedFor: return "need not see " + who + ", which nobody has waited for";
    case Why::kCached:
      return "may find an old line in a cache; " + who + " is newer and there was no buffer_inv " + bits + " since";
    case Why::kNothing: break;
  }
  return "";
}

// ---- workgroups

Coherence::Coherence(std::vector<std::uint64_t> workgroups, std::vector<Range> uncached,
                     std::optional<std::uint64_t> seed)
    : left_(std::move(workgroups)),
      ended_at_(left_.size(), kNever),
      shares_dies_(left_.size()),
      uncached_(std::move(uncached)),
      filter_(1U << 14),
      first_die_(static_cast<unsigned>(seed.value_or(0) % kDies)),
      random_(seed.has_value()),
      generator_(seed.value_or(0) + 77) {
  for (std::size_t device = 0; device < left_.size(); ++device) {
    shares_dies_[device] = left_[device] > kDies;
    dies_.push_back(std::make_unique<std::array<Die, kDies>>());
  }
}

Coherence::Group* Coherence::start(unsigned device, std::uint64_t number) {
  if (idle_.empty()) {
    groups_.push_back(std::make_unique<Group>());
    idle_.push_back(groups_.back().get());
  }
  Group* const group = idle_.back();
  idle_.pop_back();
  group->device = device;
  group->number = number;
  group->die_number = static_cast<unsigned>((number + first_die_) % kDies);
  group->die = &(*dies_[device])[group->die_number];
  group->vector_cache.forget();
  group->scalar_cache.forget();
  return group;
}

void Coherence::end(Group* group) {
  if (!group->has_written) idle_.push_back(group);
  else group->vector_cache = group->scalar_cache = {};
  if (--left_[group->device] == 0) ended_at_[group->device] = ++now_;
}

void Coherence::finish_one(std::size_t index) { complete(pending_[index].operation); }

void Coherence::tick() {
  ++tick_;
  if (random_) {
    if (!pending_.empty() && generator_() % 4 == 0) finish_one(generator_() % pending_.size());
    if (groups_.empty()) return;
    const std::uint64_t chance = generator_() % 32;
    if (chance > 2) return;
    Group& group = *groups_[generator_() % groups_.size()];
    if (chance == 0) {
      group.vector_cache.forget();
      if (generator_() % 4 == 0) group.die->cache.forget();
    } else if (group.has_written) {
      const std::uint64_t time = ++now_;
      group.die->write_backs.push_back({&group, time, time, chance == 1 ? Scope::kAgent : Scope::kSystem});
    }
    return;
  }
  // The newest first, so that stores overtake each other.
  if (pending_.empty() || tick_ % 16 != 0) return;
  for (std::size_t i = pending_.size(); i-- > 0;) {
    if (pending_[i].tick + kPatience > tick_) continue;
    finish_one(i);
    return;
  }
}

// ---- visibility

bool Coherence::is_uncached(std::uint64_t address) const {
  return std::any_of(uncached_.begin(), uncached_.end(),
                     [&](const Range& range) { return address - range.address < range.bytes; });
}

std::uint64_t Coherence::visible_at(const Write& write, const Group& reader) const {
  if (write.group == &reader) return 0;
  const bool same_device = write.group->device == reader.device;
  std::uint64_t time = same_device ? kNever : ended_at_[write.group->device];
  if (write.group->die == reader.die) return std::min(time, write.done);
  const Scope least = same_device ? Scope::kAgent : Scope::kSystem;
  if (write.scope >= least) time = std::min(time, write.done);
  const auto& backs = write.group->die->write_backs;
  auto back = std::lower_bound(backs.begin(), backs.end(), write.issued,
                               [](const WriteBack& a, std::uint64_t issued) { return a.issued < issued; });
  for (; back != backs.end() && back->issued < time; ++back) {
    // What other workgroups write back is what has reached the die's cache.
    if (back->group != write.group && back->issued < write.done) continue;
    if (back->scope >= least) time = std::min(time, back->done);
  }
  return time;
}

unsigned Coherence::view(Reader reader, const Group& group, Scope scope, CachedLines::Times times, std::uint64_t line,
                         unsigned first, unsigned bytes, std::byte* data, Unseen& unseen) const {
  const auto found = lines_.find(line);
  if (found == lines_.end()) return 0;
  const auto bit = [](const Mask& mask, unsigned byte) { return (mask[byte / 64] >> byte % 64 & 1) != 0; };
  std::byte newest[kLine];
  std::memcpy(newest, data, bytes);
  const Write* hides[kLine] = {};
  Mask settled{};
  for (auto write = found->second.rbegin(); write != found->second.rend(); ++write) {
    const bool own = write->group == &group;
    const bool same_device = write->group->device == group.device;
    const bool same_die = write->group->die == group.die;
    std::uint64_t since = same_die ? times.die : same_device ? times.agent : times.system;
    std::uint64_t time = visible_at(*write, group);
    if (reader == Reader::kScalar) {
      if (own) time = write->issued;  // the scalar cache does not see the stores of its own waves
    } else if (reader == Reader::kAtomic) {
      if (write->atomic && (same_device || write->scope == Scope::kSystem)) time = 0;
    }
    if (reader != Reader::kScalar && scope >= (same_device ? Scope::kAgent : Scope::kSystem)) since = kNever - 1;
    for (unsigned i = 0; i < bytes; ++i) {
      const unsigned byte = first + i;
      if (!bit(write->mask, byte) || bit(settled, byte)) continue;
      if (time <= since) {
        settled[byte / 64] |= std::uint64_t{1} << byte % 64;
      } else {
        data[i] = write->before[byte];
        hides[i] = &*write;
      }
    }
  }
  unsigned bad = 0;
  for (unsigned i = 0; i < bytes; ++i) {
    if (hides[i] == nullptr || data[i] == newest[i]) continue;
    const Write& write = *hides[i];
    const bool same_device = write.group->device == group.device;
    const Scope least = same_device ? Scope::kAgent : Scope::kSystem;
    const std::uint64_t time = visible_at(write, group);
    // Loops of compare-and-swap begin with a plain load, and polling asks again until it sees the store.
    if (write.atomic) continue;
    Unseen::Why why = Unseen::Why::kCached;
    const bool same_die = write.group->die == group.die;
    if (time == kNever && same_die) {
      if (reader == Reader::kAtomic || scope >= Scope::kAgent || write.group->newest_reached < write.issued) continue;
      why = Unseen::Why::kNotWaitedFor;
    } else if (time == kNever) {
      const auto& backs = write.group->die->write_backs;
      const bool started = std::any_of(backs.begin(), backs.end(), [&](const WriteBack& back) {
        return back.group == write.group && back.issued > write.issued && back.scope >= least;
      });
      why = started || write.scope >= least ? Unseen::Why::kNotWaitedFor : Unseen::Why::kNotWrittenBack;
      if (write.scope >= least && (reader == Reader::kAtomic || scope >= least)) continue;
      // A reader that comes too early, unless a later store has overtaken this one and told it to come.
      if (write.scope >= least && write.group->newest_done < write.issued) continue;
    }
    unseen = {why,          write.group->device,       write.group->number, write.instruction, write.group->die_number,
              !same_device, reader == Reader::kScalar, same_die};
    bad |= 1U << i / 4;
  }
  return bad;
}

// ---- accesses

Coherence::Access Coherence::begin(Group* group, Scope scope, std::uint32_t instruction, bool atomic) {
  Access access{group, scope, instruction, atomic};
  access.issued = ++now_;
  return access;
}

unsigned Coherence::load_lines(Access& access, std::uint64_t address, unsigned bytes, std::byte* data) {
  unsigned bad = 0;
  for (unsigned done = 0; done < bytes;) {
    const std::uint64_t line = (address + done) / kLine;
    const auto first = static_cast<unsigned>((address + done) % kLine);
    const unsigned part = std::min<unsigned>(bytes - done, static_cast<unsigned>(kLine) - first);
    if (line != access.line) {
      access.line = line;
      access.written = maybe_written(line);
      access.times = {now_, now_, now_};
      if (access.scope != Scope::kSystem && !is_uncached(line * kLine))
        access.times = access.group->vector_cache.touch(line, now_, access.group->die->cache);
    }
    if (access.written) {
      const Scope scope = is_uncached(address + done) ? Scope::kSystem : access.scope;
      bad |= view(Reader::kLoad, *access.group, scope, access.times, line, first, part, data + done, access.unseen)
             << done / 4;
    }
    done += part;
  }
  return bad;
}

void Coherence::record(Access& access, std::uint64_t line, unsigned first, unsigned bytes) {
  if (access.writes == nullptr || access.stored_line != line) {
    access.stored_line = line;
    access.writes = &lines_[line];
    filter_[line / 64 % filter_.size()] |= std::uint64_t{1} << line % 64;
  }
  std::vector<Write>& writes = *access.writes;
  const Scope scope = is_uncached(line * kLine + first) ? Scope::kSystem : access.scope;
  Write* write = writes.empty() ? nullptr : &writes.back();
  const auto merges = [&] {
    if (write == nullptr || write->group != access.group || write->scope != scope || write->atomic != access.atomic)
      return false;
    if (write->issued == access.issued) return true;
    const auto& backs = access.group->die->write_backs;
    return scope == Scope::kWorkgroup && !access.atomic && write->done == kNever &&
           (backs.empty() || backs.back().issued < write->issued);
  };
  if (!merges()) {
    if (writes.size() >= kMostWrites) {
      const auto old = std::find_if(writes.begin(), writes.end(), [](const Write& known) {
        const auto& backs = known.group->die->write_backs;
        return (known.scope != Scope::kWorkgroup && known.done != kNever) ||
               (!backs.empty() && backs.back().done != kNever && backs.back().issued > known.issued &&
                (backs.back().group == known.group || backs.back().issued > known.done));
      });
      if (old != writes.end()) {
        // What was stored before it cannot come back.
        for (auto older = writes.begin(); older != old; ++older) {
          for (unsigned half = 0; half < 2; ++half) older->mask[half] &= ~old->mask[half];
        }
        writes.erase(old);
      }
    }
    writes.push_back({access.group, access.issued, kNever, access.instruction, scope, access.atomic, {}, {}});
    write = &writes.back();
  }
  write->issued = access.issued;
  write->instruction = access.instruction;
  const auto* const newest = reinterpret_cast<const std::byte*>(line * kLine);
  const std::uint64_t run = bytes >= 64 ? ~std::uint64_t{0} : ((std::uint64_t{1} << bytes) - 1) << first % 64;
  if (first / 64 == (first + bytes - 1) / 64 && (write->mask[first / 64] & run) == 0) {
    write->mask[first / 64] |= run;
    std::memcpy(&write->before[first], newest + first, bytes);
  } else {
    for (unsigned byte = first; byte < first + bytes; ++byte) {
      std::uint64_t& word = write->mask[byte / 64];
      if ((word >> byte % 64 & 1) != 0) continue;
      word |= std::uint64_t{1} << byte % 64;
      write->before[byte] = newest[byte];
    }
  }
  const bool is_followed = scope != Scope::kWorkgroup || shares_dies_[access.group->device];
  if (is_followed && (access.lines.empty() || access.lines.back() != line)) access.lines.push_back(line);
}

void Coherence::store(Access& access, const std::byte* place, unsigned bytes) {
  access.group->has_written = access.group->die->has_written = true;
  auto address = reinterpret_cast<std::uint64_t>(place);
  while (bytes > 0) {
    const auto first = static_cast<unsigned>(address % kLine);
    const unsigned part = std::min<unsigned>(bytes, static_cast<unsigned>(kLine) - first);
    record(access, address / kLine, first, part);
    address += part;
    bytes -= part;
  }
}

bool Coherence::all_atomic(const Access& access, std::uint64_t line) const {
  const auto found = lines_.find(line);
  if (found == lines_.end()) return true;
  return std::all_of(found->second.begin(), found->second.end(), [&](const Write& write) {
    return write.atomic && (write.group->device == access.group->device || write.scope == Scope::kSystem);
  });
}

void Coherence::modify(Access& access, std::byte* place, unsigned bytes, int lane) {
  const auto address = reinterpret_cast<std::uint64_t>(place);
  const std::uint64_t line = address / kLine;
  if (!maybe_written(line) || all_atomic(access, line)) {
    store(access, place, bytes);
    return;
  }
  std::byte seen[8];
  std::memcpy(seen, place, bytes);
  Unseen unseen;
  const auto first = static_cast<unsigned>(address % kLine);
  if (view(Reader::kAtomic, *access.group, access.scope, {now_, now_, now_}, line, first, bytes, seen, unseen) != 0)
    throw Violation{unseen.kind(), "the operation " + unseen.text(), lane, address};
  store(access, place, bytes);
  std::memcpy(place, seen, bytes);
}

std::uint64_t Coherence::finish(Access& access, const void* wave, bool& early) {
  early = false;
  if (access.lines.empty()) return 0;
  const bool is_plain = access.scope == Scope::kWorkgroup && !is_uncached(access.lines.front() * kLine);
  const bool overtakes =
      std::any_of(pending_.rbegin(), pending_.rend(), [&](const Pending& known) { return known.wave == wave; });
  if (pending_.size() >= kMostPending) finish_one(0);
  pending_.push_back({access.issued, access.group, wave, false, is_plain, tick_, std::move(access.lines)});
  if (overtakes && early_[access.instruction]++ < kOvertakings) {
    early = true;
    complete(access.issued);
    return 0;
  }
  return access.issued;
}

std::uint64_t Coherence::write_back(Group* group, Scope scope, const void* wave) {
  if (scope == Scope::kWorkgroup || !group->die->has_written) return 0;
  group->die->write_backs.push_back({group, ++now_, kNever, scope});
  pending_.push_back({now_, group, wave, true, false, tick_, {}});
  return now_;
}

void Coherence::invalidate(Group* group, Scope scope, bool own) {
  ++now_;
  if (own || scope != Scope::kWorkgroup) group->vector_cache.invalidate(scope == Scope::kSystem, now_);
  if (scope != Scope::kWorkgroup) group->die->cache.invalidate(scope == Scope::kSystem, now_);
}

void Coherence::abandon(std::uint64_t operation) {
  const auto found = std::find_if(pending_.rbegin(), pending_.rend(),
                                  [&](const Pending& known) { return known.operation == operation; });
  if (found != pending_.rend() && found->is_plain) complete(operation);
}

void Coherence::complete(std::uint64_t operation) {
  const auto found = std::find_if(pending_.rbegin(), pending_.rend(),
                                  [&](const Pending& known) { return known.operation == operation; });
  if (found == pending_.rend()) return;  // it was done before anybody waited for it
  const std::uint64_t time = ++now_;
  Group& group = *found->group;
  if (!found->is_write_back) group.newest_reached = std::max(group.newest_reached, operation);
  if (!found->is_write_back && !found->is_plain) group.newest_done = std::max(group.newest_done, operation);
  if (found->is_write_back) {
    for (WriteBack& back : group.die->write_backs) {
      if (back.issued == operation) back.done = time;
    }
  }
  for (const std::uint64_t line : found->lines) {
    for (Write& write : lines_[line]) {
      if (write.issued == operation && write.group == found->group) write.done = time;
    }
  }
  pending_.erase(std::next(found).base());
}

void Coherence::load_scalars(Group* group, const std::byte* place, unsigned bytes) {
  const auto address = reinterpret_cast<std::uint64_t>(place);
  std::byte seen[64];
  std::memcpy(seen, place, bytes);
  for (unsigned done = 0; done < bytes;) {
    const std::uint64_t line = (address + done) / kLine;
    const auto first = static_cast<unsigned>((address + done) % kLine);
    const unsigned part = std::min<unsigned>(bytes - done, static_cast<unsigned>(kLine) - first);
    const CachedLines::Times times = group->scalar_cache.touch(line, ++now_, group->die->cache);
    Unseen unseen;
    if (maybe_written(line) &&
        view(Reader::kScalar, *group, Scope::kWorkgroup, times, line, first, part, seen + done, unseen) != 0) {
      throw Violation{unseen.kind(), "the scalar load " + unseen.text(), -1, address};
    }
    done += part;
  }
}

}  // namespace msa_ops::emulator::gfx950

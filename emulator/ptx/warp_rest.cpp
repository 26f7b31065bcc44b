// What is known of a warp that does not go on: loops that never end, lanes that wait for others, and how that is told.
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

#include "warp.hpp"

namespace msa_ops::emulator::ptx {
namespace {

// "lane 3", "lanes 0 to 15", "lanes 0x11110000"
std::string lanes_text(Mask lanes) {
  const int first = __builtin_ctz(lanes), last = 31 - __builtin_clz(lanes);
  if (first == last) return "lane " + std::to_string(first);
  if (__builtin_popcount(lanes) == last - first + 1) {
    return "lanes " + std::to_string(first) + " to " + std::to_string(last);
  }
  char made[16];
  std::snprintf(made, sizeof(made), "0x%08x", lanes);
  return std::string("lanes ") + made;
}

}  // namespace

void PtxWarp::look_for_loop() {
  const Changes now = block_.cluster().changes();
  if (loop_.loops(now)) return;
  Mask runnable = 0;
  for (const Path& path : paths_) {
    if (path.waits_for == 0) runnable |= path.lanes;
  }
  // Loads of an early block may find what stood there before an earlier launch, or what is there now.
  const LoopWatch::Way way{paths_[now_].next,     at_, runnable, paths_[now_].lanes, block_.global_uses(),
                           block_.is_early()};
  loop_.went_back(now, way, [&] { return state(); });
  if (loop_.loops(now) && block_.cluster().has_lanes_apart() && release_lanes(kNever)) note_change();
}

LoopWatch::State PtxWarp::state() {
  control_ = {static_cast<std::uint32_t>(now_), carry_, live_, meeting_.come, meeting_.passed, meeting_.votes,
              meeting_.barrier, meeting_.warps, meeting_.waits ? 1U : 0U, has_voted_ ? 1U : 0U};
  const auto place_of = [&](std::uint32_t id) {
    std::uint32_t place = 0;
    while (place < paths_.size() && id != 0 && paths_[place].id != id) ++place;
    return place;
  };
  for (const Path& path : paths_) {
    for (const std::uint32_t one : {path.next, path.reconvergence, path.lanes, place_of(path.parent), path.waits_for,
                                    place_of(path.caller), path.call == nullptr ? 0 : path.call->first}) {
      control_.push_back(one);
    }
  }
  return {file_, defined_, control_};
}

std::uint32_t PtxWarp::read_in_loop() const {
  for (std::uint32_t pc = loop_.first(); pc <= loop_.last(); ++pc) {
    const std::string& opcode = kernel_.instructions()[pc].form->opcode;
    for (const std::string_view start : {"ld.", "ldu.", "atom.", "mbarrier."}) {
      if (opcode.compare(0, start.size(), start) == 0) return pc;
    }
  }
  return loop_.last();
}

std::string PtxWarp::describe_loop(const Changes& now) const {
  if (!loop_.loops(now)) return "";
  const auto line = [&](std::uint32_t pc) { return std::to_string(kernel_.line_of(pc)); };
  const std::uint32_t reads = read_in_loop();
  std::string text = "loops for ever at lines " + line(loop_.first()) + " to " + line(loop_.last());
  if (reads != loop_.last()) text += ", reading by `" + kernel_.text_of(reads) + "` at " + kernel_.where(reads);
  return text;
}

std::string PtxWarp::describe_poll() const {
  const bool is_whole = paths_.size() == 1;
  std::string text;
  for (const Path& path : paths_) {
    if (path.waits_for != 0 || path.next >= kernel_.instructions().size()) continue;
    const std::string& opcode = kernel_.instructions()[path.next].form->opcode;
    text += text.empty() ? "" : ", and ";
    if (opcode.compare(0, 13, "tcgen05.alloc") == 0) {
      text += describe_wanted_columns();
    } else {
      text += "`" + opcode + "` to go on";
    }
    if (!is_whole) text += " by " + lanes_text(path.lanes) + " at " + kernel_.where(path.next);
  }
  return text;
}

std::string PtxWarp::describe_wanted_columns() const {
  const auto [columns, blocks] = wanted_columns_;
  std::string text = std::to_string(columns) + " columns of tensor memory";
  for (unsigned i = 0; i < blocks; ++i) {
    const ThreadBlock& block = i == 0 ? block_ : block_.cluster().block(block_.rank() ^ 1U);
    const auto& at = block.index();
    text += (i == 0 ? ", of which in block (" : "; in its peer, block (") + std::to_string(at[0]) + ", " +
            std::to_string(at[1]) + ", " + std::to_string(at[2]) + ") " + block.tensor_memory().describe_allocations();
    if (i > 0 && block.tensor_memory().wanted() == 0) text += "; it has not asked for any";
  }
  return text;
}

Place PtxWarp::place_of_loop(const Changes& now) const { return loop_.loops(now) ? place(read_in_loop()) : place(); }

Mask PtxWarp::waiting_lanes(const Path& path) const {
  Mask waiting = path.waits_for > 0 ? path.lanes : 0;
  for (const Path& other : paths_) {
    if (other.parent == path.id) waiting &= ~other.lanes;
  }
  return waiting;
}

// They get a path of their own, beside the one that still waits.
bool PtxWarp::release_lanes(std::uint64_t last) {
  bool some = false;
  for (std::size_t i = 0; i < paths_.size(); ++i) {
    const Mask lanes = waiting_lanes(paths_[i]);
    if (lanes == 0 || paths_[i].since > last) continue;
    some = true;
    paths_[i].lanes &= ~lanes;
    Path released = paths_[i];
    released.id = next_id_++;
    released.lanes = lanes;
    released.waits_for = 0;
    for (Path& path : paths_) {
      if (released.parent != 0 && path.id == released.parent) ++path.waits_for;
    }
    paths_.push_back(std::move(released));
  }
  return some;
}

}  // namespace msa_ops::emulator::ptx

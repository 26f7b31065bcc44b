// Lanes that have parted: the paths of a warp, whose turn it is, and where they meet again.
#include <algorithm>
#include <cstring>
#include <utility>

#include "error.hpp"
#include "lanes.hpp"
#include "warp.hpp"

namespace msa_ops::emulator::ptx {
std::size_t PtxWarp::runnable() const {
  return static_cast<std::size_t>(
      std::count_if(paths_.begin(), paths_.end(), [](const Path& path) { return path.waits_for == 0; }));
}

void PtxWarp::pick() {
  turns_ = 0;
  for (std::size_t i = paths_.size(); i-- > 0;) {
    if (paths_[i].waits_for == 0) {
      now_ = i;
      return;
    }
  }
}

bool PtxWarp::next_path() {
  turns_ = 0;
  loop_.note_ran(paths_[now_].lanes);
  for (std::size_t i = 1; i < paths_.size(); ++i) {
    const std::size_t at = (now_ + i) % paths_.size();
    if (paths_[at].waits_for == 0) {
      now_ = at;
      return true;
    }
  }
  return false;
}

void PtxWarp::remove(std::size_t at) {
  if (const std::uint32_t parent = paths_[at].parent; parent != 0) {
    for (Path& path : paths_) {
      if (path.id != parent) continue;
      --path.waits_for;
      path.since = block_.cluster().elapsed();
    }
  }
  paths_.erase(paths_.begin() + static_cast<std::ptrdiff_t>(at));
}

// The present path is at an instruction that wants lanes of other paths, and has done nothing of it. They may come to
// the same place, or end, so they run first if they do not wait for this path. False if all of them have tried.
bool PtxWarp::let_others_go_first() {
  Path& path = paths_[now_];
  path.next = at_;
  for (std::size_t i = 0; i < paths_.size(); ++i) {
    Path& other = paths_[i];
    if (i == now_ || other.next != at_ || other.waits_for != 0 || other.parent != path.parent ||
        other.reconvergence != path.reconvergence) {
      continue;
    }
    other.lanes |= path.lanes;
    const std::uint32_t id = other.id;
    remove(now_);
    for (std::size_t at = 0; at < paths_.size(); ++at) {
      if (paths_[at].id == id) now_ = at;
    }
    parked_ = 0;
    return true;
  }
  if (!next_path()) return false;
  return ++parked_ < 2 * paths_.size();
}

void PtxWarp::branch(const Instruction& instruction, Mask taken) {
  Path& path = paths_[now_];
  const Mask passed = path.lanes & ~taken;
  if (passed == 0) {
    path.next = instruction.target;
    return;
  }
  if (instruction.form->opcode == "bra.uni") {
    throw Violation{FaultKind::kDivergence, "the branch is said to be uniform; this lane does not take it",
                    lowest(passed)};
  }
  part({{path.next, passed}, {instruction.target, taken}}, instruction.reconvergence);
}

void PtxWarp::branch_by_index(const Instruction& instruction, Mask lanes) {
  const auto* indices = row<std::uint32_t>(instruction.operands[0]);
  std::vector<std::pair<std::uint32_t, Mask>> ways;
  const auto add = [&](std::uint32_t to, Mask some) {
    const auto known = std::find_if(ways.begin(), ways.end(), [&](const auto& way) { return way.first == to; });
    if (known != ways.end()) known->second |= some;
    else ways.emplace_back(to, some);
  };
  Path& path = paths_[now_];
  if (const Mask passed = path.lanes & ~lanes; passed != 0) add(path.next, passed);
  for (Mask rest = lanes; rest != 0; rest &= rest - 1) {
    const int lane = lowest(rest);
    if (indices[lane] >= instruction.targets.size()) {
      throw Violation{FaultKind::kOutOfBounds,
                      "target " + std::to_string(indices[lane]) + " of " + std::to_string(instruction.targets.size()), lane};
    }
    add(instruction.targets[indices[lane]], Mask{1} << lane);
  }
  if (ways.size() == 1) {
    path.next = ways[0].first;
    return;
  }
  if (instruction.form->opcode == "brx.idx.uni") {
    throw Violation{FaultKind::kDivergence, "the branch is said to be uniform; this lane goes another way",
                    lowest(ways[1].second)};
  }
  part(ways, instruction.reconvergence);
}

void PtxWarp::part(const std::vector<std::pair<std::uint32_t, Mask>>& ways, std::uint32_t meet) {
  Path& path = paths_[now_];
  std::uint32_t parent = path.id;
  const std::uint32_t caller = path.caller;
  const Call* const call = path.call;
  const std::shared_ptr<const Stack::Tops> tops = path.tops;
  // If the lanes meet where this path ends anyway, its own parent already waits there for all of them.
  const bool replaced = meet == path.reconvergence;
  if (replaced) parent = path.parent;
  const auto parts = static_cast<std::uint32_t>(
      std::count_if(ways.begin(), ways.end(), [&](const auto& way) { return way.first != meet; }));
  if (replaced) {
    for (Path& other : paths_) {
      if (other.id == parent && parent != 0) other.waits_for += parts;
    }
    remove(now_);
  } else {
    path.next = meet;
    path.waits_for += parts;
    path.since = block_.cluster().elapsed();
  }
  for (const auto& [next, lanes] : ways) {
    if (next != meet) paths_.push_back({next, meet, lanes, next_id_++, parent, 0, caller, call, tops});
  }
  pick();
}

void PtxWarp::leave(Mask lanes) {
  live_ &= ~lanes;
  note_change();
  for (Path& path : paths_) path.lanes &= ~lanes;
  for (std::size_t i = paths_.size(); i-- > 0;) {
    if (paths_[i].lanes == 0) remove(i);
  }
  pick();
}

PtxWarp::Path& PtxWarp::path_of(std::uint32_t id) {
  return *std::find_if(paths_.begin(), paths_.end(), [&](const Path& path) { return path.id == id; });
}

}  // namespace msa_ops::emulator::ptx

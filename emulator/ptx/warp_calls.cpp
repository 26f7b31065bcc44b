// Functions that a warp calls.
#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "error.hpp"
#include "lanes.hpp"
#include "warp.hpp"

namespace msa_ops::emulator::ptx {
// Whether the present path is in that function, or in one that it has called.
bool PtxWarp::is_within(const Call& call) {
  for (const Path* path = &paths_[now_]; path->caller != 0; path = &path_of(path->caller)) {
    if (path->call->number == call.number) return true;
  }
  return false;
}

// The present path waits behind the call until its lanes have come back; those that do not call wait with them.
void PtxWarp::call(const Instruction& instruction, Mask lanes) {
  const CallSite& site = kernel_.call_sites()[instruction.target];
  const std::uint32_t parent = paths_[now_].id;
  for (Mask rest = lanes; rest != 0;) {
    const Call* call = &site.targets[0];
    Mask some = rest;
    if (site.pointer.present) {
      const unsigned first = static_cast<unsigned>(lowest(rest));
      const auto* pointers = row<std::uint64_t>(site.pointer);
      const auto found = std::find_if(site.targets.begin(), site.targets.end(), [&](const Call& one) {
        return (kFunctionWindow | one.number) == pointers[first];
      });
      if (found == site.targets.end()) {
        throw Violation{FaultKind::kOutOfBounds, "a call of what is no function with such parameters",
                        static_cast<int>(first), pointers[first]};
      }
      call = &*found;
      for (unsigned lane = 0; lane < kLanes; ++lane) {
        if (pointers[lane] != pointers[first]) some &= ~(Mask{1} << lane);
      }
    }
    rest &= ~some;
    if (is_within(*call)) throw Unsupported("a call of `" + call->name + "` within itself", instruction.line);
    for (std::uint32_t index = call->first_register; index < call->end_register; ++index) defined_[index] &= ~some;
    for (Mask each = some; each != 0; each &= each - 1) {
      const std::size_t start = static_cast<std::size_t>(lowest(each)) * kernel_.local_bytes();
      local_written_.clear(start + call->first_local, call->end_local - call->first_local);
    }
    copy(call->arguments, some);
    if (call->is_external) {
      call_external(*this, instruction, *call, some);
      note_change();
      copy(call->results, some);
      continue;
    }
    ++path_of(parent).waits_for;
    path_of(parent).since = block_.cluster().elapsed();
    paths_.push_back({call->first, call->end, some, next_id_++, parent, 0, parent, call,
                      stack_.is_used() ? std::make_shared<const Stack::Tops>(stack_.tops()) : nullptr});
  }
  pick();
}

void PtxWarp::return_from(Mask lanes) {
  const std::uint32_t caller = paths_[now_].caller;
  if (caller == 0) return leave(lanes);
  copy(paths_[now_].call->results, lanes);
  if (stack_.is_used()) {
    note_change();
    const Stack::Tops* tops = paths_[now_].tops.get();
    for (Mask rest = lanes; rest != 0; rest &= rest - 1) {
      const auto lane = static_cast<unsigned>(lowest(rest));
      stack_.give_back_to(lane, tops != nullptr ? (*tops)[lane] : Stack::kEnd);
    }
  }
  for (std::uint32_t id = paths_[now_].id; id != caller;) {
    Path& path = path_of(id);
    path.lanes &= ~lanes;
    id = path.parent;
  }
  for (std::size_t i = paths_.size(); i-- > 0;) {
    if (paths_[i].lanes == 0) remove(i);
  }
  pick();
}

void PtxWarp::copy(const std::vector<CallCopy>& copies, Mask lanes) {
  uses_local_ = uses_local_ || local_.size() > 0;
  for (const CallCopy& one : copies) {
    if (!one.to.value.present) note_change();
    for (Mask rest = lanes; rest != 0; rest &= rest - 1) {
      const auto lane = static_cast<unsigned>(lowest(rest));
      const std::size_t local = lane * kernel_.local_bytes();
      const Operand &from = one.from.value, &to = one.to.value;
      std::uint64_t number = 0;
      bool has_value = true;
      if (from.present) {
        number = value(from, lane);
        has_value = (undefined(from) >> lane & 1) == 0;
      } else if (to.present) {
        std::memcpy(&number, local_.data() + local + one.from.local, one.bytes);
        const auto* written = local_written_.data() + local + one.from.local;
        has_value = std::find(written, written + one.bytes, 0) == written + one.bytes;
      } else {
        std::memcpy(local_.data() + local + one.to.local, local_.data() + local + one.from.local, one.bytes);
        std::memcpy(local_written_.data() + local + one.to.local, local_written_.data() + local + one.from.local, one.bytes);
        continue;
      }
      if (to.present) {
        set_value(to, lane, number);
        const Mask bit = Mask{1} << lane;
        defined_[to.index] = has_value ? defined_[to.index] | bit : defined_[to.index] & ~bit;
      } else {
        std::memcpy(local_.data() + local + one.to.local, &number, one.bytes);
        std::memset(local_written_.data() + local + one.to.local, has_value ? 1 : 0, one.bytes);
      }
    }
  }
}

}  // namespace msa_ops::emulator::ptx

#include "dropped_reads.hpp"

#include <algorithm>
#include <iterator>
#include <set>
#include <string_view>

namespace msa_ops::emulator::ptx {
namespace {

bool begins(const Instruction& instruction, std::string_view start) {
  return std::string_view(instruction.form->opcode).substr(0, start.size()) == start;
}

bool orders(const Instruction& instruction) {
  static constexpr std::string_view kOpcodes[] = {"bar",     "atom",     "red.",    "fence",   "membar",         "mbarrier",
                                                  "cp.",     "multimem", "wgmma",   "tcgen05", "griddepcontrol", "call",
                                                  "st.async", "clusterlaunchcontrol", "prefetch", "discard", "tensormap"};
  return instruction.order != Order::kDefault ||
         std::any_of(std::begin(kOpcodes), std::end(kOpcodes),
                     [&](std::string_view opcode) { return begins(instruction, opcode); });
}

bool uses_carry(const Instruction& instruction) {
  const std::string_view opcode = instruction.form->opcode;
  return opcode.find(".cc") != std::string_view::npos || begins(instruction, "addc") || begins(instruction, "subc") ||
         begins(instruction, "madc");
}

// Lane by lane, from registers to registers.
bool only_computes(const Instruction& instruction) {
  return !uses_carry(instruction) && instruction.form->memory == MemorySpace::kNone && instruction.form->control == Form::Control::kNone &&
         (instruction.form->undefined == Form::Undefined::kSpreads || begins(instruction, "mov."));
}

// Calls visit(at) for what can come after the instruction at `from`; it says whether to go on from there.
template <typename Visit>
void walk(const std::vector<Instruction>& all, std::uint32_t past, std::uint32_t from, std::set<std::uint32_t>& seen,
          Visit visit) {
  std::vector<std::uint32_t> open;
  const auto follow = [&](std::uint32_t at) {
    const Instruction& here = all[at];
    const bool branches = here.form->control == Form::Control::kBranch;
    if (branches && here.targets.empty()) open.push_back(here.target);
    open.insert(open.end(), here.targets.begin(), here.targets.end());
    const bool always_leaves = !here.guard.present && (branches || here.form->control == Form::Control::kReturn);
    if (!always_leaves) open.push_back(at + 1);
  };
  follow(from);
  while (!open.empty()) {
    const std::uint32_t at = open.back();
    open.pop_back();
    if (at < past && seen.insert(at).second && visit(at)) follow(at);
  }
}

bool is_guarded_store(const Instruction& instruction) {
  return instruction.guard.present && begins(instruction, "st.global.");
}

// A branch over computations: which way a lane goes decides their results alone.
bool skips_computations(const std::vector<Instruction>& all, std::uint32_t branch, std::uint32_t past) {
  const Instruction& here = all[branch];
  return here.form->control == Form::Control::kBranch && here.targets.empty() && here.target > branch &&
         here.target <= past &&
         std::all_of(all.begin() + branch + 1, all.begin() + here.target, only_computes);
}

// The stores that the values of a read reach, and the registers on the way; no store if they reach anything else, or a
// store of all lanes.
std::vector<std::uint32_t> stores_of(const std::vector<Instruction>& all, std::uint32_t start, std::uint32_t past,
                                     std::uint32_t read, std::set<std::uint32_t>& reached) {
  reached.insert(all[read].destinations.begin(), all[read].destinations.end());
  const auto is_reached = [&](std::uint32_t index) { return reached.count(index) != 0; };
  std::vector<std::uint32_t> stores;
  for (std::size_t before = 0; before != reached.size();) {
    before = reached.size();
    stores.clear();
    for (std::uint32_t at = start; at < past; ++at) {
      const Instruction& here = all[at];
      const auto reach = [&](const Instruction& one) { reached.insert(one.destinations.begin(), one.destinations.end()); };
      if (here.guard.present && is_reached(here.guard.index)) {
        if (only_computes(here)) {
          reach(here);
        } else if (skips_computations(all, at, past)) {
          std::for_each(all.begin() + at + 1, all.begin() + here.target, reach);
        } else {
          return {};
        }
      }
      if (std::none_of(here.sources.begin(), here.sources.end(), is_reached)) continue;
      if (only_computes(here)) {
        reach(here);
      } else if (is_guarded_store(here) && !is_reached(here.operands[0].index)) {
        stores.push_back(at);
      } else {
        return {};
      }
    }
  }
  return stores;
}

bool holds(const std::vector<std::uint32_t>& registers, std::uint32_t index) {
  return std::find(registers.begin(), registers.end(), index) != registers.end();
}

// Whether what a register holds when the instruction at `from` is executed is used behind it.
bool is_used_behind(const std::vector<Instruction>& all, std::uint32_t past, std::uint32_t from, std::uint32_t index) {
  bool is_used = false;
  std::set<std::uint32_t> seen;
  walk(all, past, from, seen, [&](std::uint32_t next) {
    const Instruction& here = all[next];
    is_used |= holds(here.sources, index) || (here.guard.present && here.guard.index == index);
    return !is_used && (here.guard.present || !holds(here.destinations, index));
  });
  return is_used;
}

}  // namespace

void find_dropped_reads(std::vector<Instruction>& all, std::uint32_t start, std::uint32_t past) {
  for (std::uint32_t at = start; at < past; ++at) {
    if (!begins(all[at], "ld.global.") || orders(all[at]) || all[at].read_only) continue;
    bool may_store = false;
    std::set<std::uint32_t> seen, borders;
    walk(all, past, at, seen, [&](std::uint32_t next) {
      may_store |= is_guarded_store(all[next]);
      if (orders(all[next])) borders.insert(next);
      return next != at && borders.count(next) == 0;
    });
    if (!may_store) continue;
    std::set<std::uint32_t> reached;
    const std::vector<std::uint32_t> stores = stores_of(all, start, past, at, reached);
    const bool lives_on = std::any_of(borders.begin(), borders.end(), [&](std::uint32_t border) {
      return std::any_of(reached.begin(), reached.end(),
                         [&](std::uint32_t index) { return is_used_behind(all, past, border, index); });
    });
    if (stores.empty() || lives_on) continue;
    all[at].late = true;
    for (const std::uint32_t store : stores) all[store].late_reads.push_back(at);
    for (const std::uint32_t border : borders) all[border].drops_late = true;
  }
}

}  // namespace msa_ops::emulator::ptx

#include "ignored_waits.hpp"

#include <algorithm>
#include <iterator>
#include <string_view>

namespace msa_ops::emulator::ptx {
namespace {

constexpr unsigned kMostSteps = 4;  // from a predicate to what is made of it, and so on

bool begins(const Instruction& instruction, std::string_view start) {
  return std::string_view(instruction.form->opcode).substr(0, start.size()) == start;
}

bool only_computes(const Instruction& instruction) {
  static constexpr std::string_view kOpcodes[] = {"mov.", "selp.", "setp.", "and.", "or.", "xor.", "not.", "cvt."};
  return std::any_of(std::begin(kOpcodes), std::end(kOpcodes),
                     [&](std::string_view opcode) { return begins(instruction, opcode); });
}

bool holds(const std::vector<std::uint32_t>& registers, std::uint32_t index) {
  return std::find(registers.begin(), registers.end(), index) != registers.end();
}

class Uses {
 public:
  Uses(const std::vector<Instruction>& all, std::uint32_t start, std::uint32_t past, bool is_function)
      : all_(all), start_(start), past_(past), is_function_(is_function) {}

  // Whether what the instruction at `from` leaves in the register decides anything.
  bool matters(std::uint32_t from, std::uint32_t index, unsigned steps) const {
    if (steps > kMostSteps) return true;
    std::vector<bool> seen(past_ - start_, false);
    std::vector<std::uint32_t> open{from + 1};
    while (!open.empty()) {
      const std::uint32_t at = open.back();
      open.pop_back();
      if (at >= past_ || seen[at - start_]) continue;
      seen[at - start_] = true;
      const Instruction& here = all_[at];
      const bool guards = here.guard.present && here.guard.index == index;
      const bool goes_on_anyway =
          here.form->control == Form::Control::kBranch && here.targets.empty() && here.target == at + 1;
      const bool may_hand_over = here.form->control == Form::Control::kCall ||
                                 (is_function_ && here.form->control == Form::Control::kReturn);
      if (steps > 0 && may_hand_over) return true;  // no call is given a predicate
      if ((guards && !goes_on_anyway) || holds(here.sources, index)) {
        if (!only_computes(here)) return true;
        for (const std::uint32_t made : here.destinations) {
          if (matters(at, made, steps + 1)) return true;
        }
      }
      if (!here.guard.present && holds(here.destinations, index)) continue;
      const bool branches = here.form->control == Form::Control::kBranch;
      if (branches && here.targets.empty()) open.push_back(here.target);
      for (const std::uint32_t target : here.targets) open.push_back(target);
      const bool always_leaves = !here.guard.present && (branches || here.form->control == Form::Control::kReturn);
      if (!always_leaves) open.push_back(at + 1);
    }
    return false;
  }

 private:
  const std::vector<Instruction>& all_;
  const std::uint32_t start_, past_;
  const bool is_function_;
};

}  // namespace

void find_ignored_waits(std::vector<Instruction>& all, std::uint32_t start, std::uint32_t past,
                        bool is_function) {
  const Uses uses(all, start, past, is_function);
  for (std::uint32_t at = start; at < past; ++at) {
    if (!begins(all[at], "mbarrier.try_wait") && !begins(all[at], "mbarrier.test_wait")) continue;
    all[at].ignored = std::none_of(all[at].destinations.begin(), all[at].destinations.end(),
                                   [&](std::uint32_t index) { return uses.matters(at, index, 0); });
  }
}

}  // namespace msa_ops::emulator::ptx

#include "control_flow.hpp"

#include <algorithm>
#include <utility>

namespace msa_ops::emulator::ptx {
namespace {

struct Graph {
  std::vector<std::uint32_t> first;                    // instruction of each block; the last block is the end
  std::vector<std::vector<std::uint32_t>> successors;  // blocks
};

// Calls come back to where they are.
bool goes_on(const Instruction& instruction) {
  return instruction.form->control == Form::Control::kNone || instruction.form->control == Form::Control::kCall;
}

bool is_return(const Instruction& instruction) {
  return instruction.form->control == Form::Control::kReturn && !instruction.guard.present;
}

template <typename Function>
void for_targets(const Instruction& instruction, Function function) {
  if (instruction.form->control != Form::Control::kBranch) return;
  if (instruction.targets.empty()) function(instruction.target);
  for (const std::uint32_t target : instruction.targets) function(target);
}

// Of one body, whose instructions begin at `start`.
Graph blocks_of(const Instruction* code, std::uint32_t size, std::uint32_t start) {
  std::vector<bool> leader(size + 1, false), targeted(size + 1, false);
  leader[0] = leader[size] = true;
  for (std::uint32_t i = 0; i < size; ++i) {
    if (goes_on(code[i])) continue;
    leader[i + 1] = true;
    for_targets(code[i], [&](std::uint32_t target) { leader[target - start] = targeted[target - start] = true; });
  }
  Graph graph;
  std::vector<std::uint32_t> block_at(size + 1, 0);
  for (std::uint32_t i = 0; i <= size; ++i) {
    if (leader[i]) graph.first.push_back(i);
    block_at[i] = static_cast<std::uint32_t>(graph.first.size() - 1);
  }
  const auto end = static_cast<std::uint32_t>(graph.first.size() - 1);
  graph.successors.resize(graph.first.size());
  std::uint32_t last_return = size;  // the regular end of the kernel; others are early ones
  for (std::uint32_t i = 0; i < size; ++i) {
    // What stands behind a return and has no label is never reached: the one that closes every body, after its own.
    if (is_return(code[i]) && (i == 0 || !is_return(code[i - 1]) || targeted[i])) last_return = i;
  }
  for (std::uint32_t block = 0; block < end; ++block) {
    const Instruction& last = code[graph.first[block + 1] - 1];
    auto& out = graph.successors[block];
    for_targets(last, [&](std::uint32_t target) { out.push_back(block_at[target - start]); });
    if (graph.first[block + 1] - 1 == last_return) out.push_back(end);
    if (goes_on(last) || last.guard.present) out.push_back(block + 1);
  }
  return graph;
}

}  // namespace

void find_reconvergence(std::vector<Instruction>& all, std::uint32_t start, std::uint32_t past) {
  Instruction* const instructions = all.data() + start;
  const std::uint32_t size = past - start;
  const Graph graph = blocks_of(instructions, size, start);
  const auto count = static_cast<std::uint32_t>(graph.first.size());
  const std::uint32_t end = count - 1;
  std::vector<std::vector<std::uint32_t>> predecessors(count);
  for (std::uint32_t block = 0; block < count; ++block) {
    for (const std::uint32_t next : graph.successors[block]) predecessors[next].push_back(block);
  }
  // Postorder of the reversed graph from the end.
  std::vector<std::uint32_t> order, number(count, count);
  std::vector<std::pair<std::uint32_t, std::size_t>> stack{{end, 0}};
  std::vector<bool> seen(count, false);
  seen[end] = true;
  while (!stack.empty()) {
    auto& [block, done] = stack.back();
    if (done < predecessors[block].size()) {
      const std::uint32_t next = predecessors[block][done++];
      if (!seen[next]) {
        seen[next] = true;
        stack.emplace_back(next, 0);
      }
    } else {
      number[block] = static_cast<std::uint32_t>(order.size());
      order.push_back(block);
      stack.pop_back();
    }
  }
  // Cooper, Harvey, Kennedy: "A simple, fast dominance algorithm", on the reversed graph. A block from which no way
  // leads to the end (an endless loop) keeps the end.
  std::vector<std::uint32_t> dominator(count, count);
  dominator[end] = end;
  for (bool changed = true; changed;) {
    changed = false;
    for (auto place = order.rbegin(); place != order.rend(); ++place) {
      if (*place == end) continue;
      std::uint32_t found = count;
      for (std::uint32_t next : graph.successors[*place]) {
        if (dominator[next] == count) continue;
        if (found == count) {
          found = next;
          continue;
        }
        while (found != next) {
          while (number[found] < number[next]) found = dominator[found];
          while (number[next] < number[found]) next = dominator[next];
        }
      }
      if (found != dominator[*place]) {
        dominator[*place] = found;
        changed = true;
      }
    }
  }
  for (std::uint32_t block = 0; block < end; ++block) {
    Instruction& last = instructions[graph.first[block + 1] - 1];
    if (last.form->control != Form::Control::kBranch) continue;
    const std::uint32_t meet = graph.first[dominator[block] == count ? end : dominator[block]];
    last.reconvergence = start + meet;
    if (meet == size) continue;
    const Instruction& there = instructions[meet];
    if (there.form->control == Form::Control::kReturn && !there.guard.present) last.reconvergence = past;
  }
}

}  // namespace msa_ops::emulator::ptx

#include "modifier_order.hpp"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "opcodes.hpp"
#include "operand_types.hpp"

namespace msa_ops::emulator::ptx {
namespace {

using Words = std::vector<std::string_view>;

// Instructions whose modifiers may change places, each with what belongs to its name.
const std::unordered_map<std::string_view, Words>& instructions() {
  static const std::unordered_map<std::string_view, Words> table{
      {"abs", {}}, {"add", {}}, {"addc", {}}, {"atom", {}}, {"bfind", {}}, {"bmsk", {}}, {"cos", {}}, {"cvt", {"pack"}},
      {"cvta", {"to"}}, {"div", {}}, {"ex2", {}}, {"fma", {}}, {"getctarank", {}}, {"ld", {}}, {"ldmatrix", {}},
      {"ldu", {}}, {"lg2", {}}, {"mad", {"lo", "hi", "wide"}}, {"mad24", {"lo", "hi"}}, {"madc", {"lo", "hi"}},
      {"mapa", {}}, {"match", {}}, {"max", {}},
      {"mbarrier", {"init", "inval", "expect_tx", "complete_tx", "arrive", "arrive_drop", "test_wait", "try_wait",
                    "pending_count", "parity"}},
      {"min", {}}, {"mma", {"sp", "sp::ordered_metadata"}}, {"movmatrix", {}}, {"mul", {"lo", "hi", "wide"}},
      {"multimem", {"ld_reduce", "red", "st"}}, {"neg", {}}, {"prefetch", {}}, {"prmt", {}}, {"rcp", {}},
      {"red", {"async"}}, {"redux", {}}, {"rsqrt", {}}, {"set", {}}, {"setp", {}}, {"shf", {"l", "r"}}, {"shfl", {}},
      {"sin", {}}, {"slct", {}}, {"sqrt", {}}, {"st", {"async", "bulk"}}, {"stmatrix", {}}, {"sub", {}}, {"subc", {}},
      {"szext", {}}, {"tanh", {}}, {"testp", {}}, {"vote", {}}};
  return table;
}

bool holds(const Words& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// b8x16, b4x16_p64 of ldmatrix
bool is_of_elements(std::string_view part) {
  return !part.empty() && part[0] == 'b' && part.find("x16") != std::string_view::npos;
}

// The same for all orders that mean the same; "" where the modifiers may not change places.
std::string key_of(std::string_view opcode) {
  Words parts;
  for (std::size_t at = 0; at < opcode.size();) {
    const std::size_t end = std::min(opcode.find('.', at), opcode.size());
    parts.push_back(opcode.substr(at, end - at));
    at = end + 1;
  }
  const auto found = instructions().find(parts.empty() ? std::string_view() : parts[0]);
  if (found == instructions().end() || (parts[0] == "div" && holds(parts, "full"))) return "";
  Words free;
  std::string key(parts[0]), types, layouts;
  bool at_start = true;
  for (std::size_t at = 1; at < parts.size(); ++at) {
    const bool of_name = holds(found->second, parts[at]);
    if (of_name && !at_start) return "";
    at_start = of_name;
    if (of_name) key += "." + std::string(parts[at]);
    else if (parts[at] == "row" || parts[at] == "col") layouts += "." + std::string(parts[at]);
    else if (is_type(parts[at]) || is_of_elements(parts[at])) types += "." + std::string(parts[at]);
    else free.push_back(parts[at]);
  }
  std::sort(free.begin(), free.end());
  for (const std::string_view one : free) key += "/" + std::string(one);
  return key + layouts + types;
}

// Opcodes of the table by their keys; "" where two have the same.
const std::unordered_map<std::string, std::string>& opcodes() {
  static const auto* table = [] {
    auto* made = new std::unordered_map<std::string, std::string>();
    for (const Form& form : all_forms()) {
      const std::string opcode = form.opcode.substr(0, form.opcode.find(' '));
      const std::string key = key_of(opcode);
      if (key.empty()) continue;
      const auto [known, is_new] = made->emplace(key, opcode);
      if (!is_new && known->second != opcode) known->second.clear();
    }
    return made;
  }();
  return *table;
}

}  // namespace

std::string in_table_order(const std::string& opcode) {
  const SplitOpcode split = without_implied(opcode);
  const std::string key = key_of(split.opcode);
  const auto found = key.empty() ? opcodes().end() : opcodes().find(key);
  return found == opcodes().end() || found->second.empty() ? "" : found->second + split.implied;
}

}  // namespace msa_ops::emulator::ptx

#include "state_spaces.hpp"

#include <algorithm>
#include <string>
#include <string_view>

#include "error.hpp"

namespace msa_ops::emulator::ptx {
namespace {

bool has(std::string_view opcode, std::string_view modifier) {
  for (std::size_t at = 0; at < opcode.size();) {
    const std::size_t end = std::min(opcode.find('.', at), opcode.size());
    if (opcode.substr(at, end - at) == modifier) return true;
    at = end + 1;
  }
  return false;
}

}  // namespace

void check_state_spaces(const Statement& statement) {
  const std::string_view opcode = statement.opcode;
  const auto begins = [&](std::string_view start) { return opcode.substr(0, start.size()) == start; };
  const bool commits = begins("tcgen05.commit.");
  const bool in_full = begins("cp.async.bulk.") || begins("cp.reduce.async.bulk.") || begins("multimem.cp.") ||
                       begins("clusterlaunchcontrol.") || begins("tcgen05.alloc.");
  if (!commits && !in_full) return;
  if (!has(opcode, "shared") && !(commits && has(opcode, "shared::cta"))) return;
  throw PtxError("`" + statement.opcode + "`: a state space that it does not take; accepted: " +
                     (commits ? ".shared::cluster" : ".shared::cta and .shared::cluster"), statement.line);
}

}  // namespace msa_ops::emulator::ptx

#include "constant_operands.hpp"

#include <string>
#include <string_view>

#include "error.hpp"

namespace msa_ops::emulator::ptx {
namespace {

bool begins(const std::string& text, std::string_view start) { return text.compare(0, start.size(), start) == 0; }

}  // namespace

void check_constant_operands(const Statement& statement) {
  const std::string& opcode = statement.opcode;
  const auto fail = [&](const std::string& what) { throw PtxError("`" + opcode + "`: " + what, statement.line); };
  const auto& operands = statement.operands;
  const auto is_constant = [&](std::size_t at) { return at < operands.size() && operands[at].kind == Term::Kind::kInteger; };
  if (begins(opcode, "cp.async.wait_group") || begins(opcode, "cp.async.bulk.wait_group")) {
    if (!operands.empty() && !is_constant(0)) fail("takes a constant");
    return;
  }
  if (begins(opcode, "wgmma.wait_group")) {
    if (!operands.empty() && (!is_constant(0) || operands[0].value >> 31 != 0)) fail("takes a constant that is not negative");
    return;
  }
  if (begins(opcode, "mbarrier.t")) {  // test_wait and try_wait
    const bool by_parity = opcode.find(".parity") != std::string::npos;
    if (by_parity && is_constant(2) && operands[2].value > 1) fail("a parity that is neither 0 nor 1");
    return;
  }
  if (begins(opcode, "st.bulk")) {
    if (!is_constant(2) || operands[2].value != 0) fail("takes 0 as its value");
    if (is_constant(1) && (operands[1].value % 8 != 0 || operands[1].value > 16'777'216)) {
      fail(std::to_string(operands[1].value) + " bytes; accepted: multiples of 8 up to 16777216");
    }
    return;
  }
  const bool all_levels = begins(opcode, "cp.async.ca."), one_level = begins(opcode, "cp.async.cg.");
  if (begins(opcode, "cp.async.shared")) fail("`.ca` or `.cg` is missing");
  if (!all_levels && !one_level) return;
  if (operands.size() < 3) return;  // which is refused for that
  if (!is_constant(2)) fail("takes a constant as its size");
  const std::uint64_t bytes = operands[2].value;
  if (one_level ? bytes != 16 : bytes != 4 && bytes != 8 && bytes != 16) {
    fail(std::to_string(bytes) + " bytes; accepted: " + (one_level ? "16" : "4, 8 and 16"));
  }
  if (is_constant(3) && operands[3].value > bytes) fail("more source bytes than bytes to copy");
}

}  // namespace msa_ops::emulator::ptx

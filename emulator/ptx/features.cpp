#include "features.hpp"

#include <cstdlib>

namespace msa_ops::emulator::ptx {
namespace {

bool begins(const std::string& text, const char* start) { return text.rfind(start, 0) == 0; }
bool holds(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

}  // namespace

bool target_has(const std::string& target, const std::string& opcode) {
  char* end = nullptr;
  const unsigned long number = begins(target, "sm_") ? std::strtoul(target.c_str() + 3, &end, 10) : 0;
  const std::string suffix = end != nullptr ? end : "";
  const bool specific = suffix == "a" || suffix == "f";
  const bool tensor_memory = specific && number >= 100 && number < 120;
  if (begins(opcode, "wgmma.")) return target == "sm_90a";
  if (begins(opcode, "tcgen05.")) {
    if (!tensor_memory) return false;
    if (holds(opcode, ".kind::i8")) return target == "sm_100a" || target == "sm_110a";
    if (begins(opcode, "tcgen05.ld.red")) return number >= 103;
    if (holds(opcode, ".scale_vec::")) return suffix == "a";
    if (holds(opcode, "collector::b") && !holds(opcode, ".ws.")) return number == 107;
    return true;
  }
  if (begins(opcode, "ldmatrix.") || begins(opcode, "stmatrix.")) {
    return holds(opcode, ".b16") || (specific && number >= 100);
  }
  return true;
}

}  // namespace msa_ops::emulator::ptx

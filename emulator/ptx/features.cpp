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
    if (holds(opcode, ".scale_vec::") || begins(opcode, "tcgen05.shift.")) return suffix == "a";
    if (holds(opcode, "collector::b") && !holds(opcode, ".ws.")) return number == 107;
    return true;
  }
  // The packed arithmetic of one generation, and of the next.
  if (holds(opcode, "x4.") && (begins(opcode, "mul.") || begins(opcode, "fma.") || begins(opcode, "add.") ||
                               begins(opcode, "sub."))) {
    return target == "sm_100a" || target == "sm_103a";
  }
  if (holds(opcode, ".f32x2.f16x2.") || holds(opcode, ".f32x2.bf16x2.") || holds(opcode, ".f32x2.f32x2") ||
      holds(opcode, ".f16x2.f32x2.f32x2")) {
    return specific && number == 107;
  }
  if (holds(opcode, "f32x2") || holds(opcode, " of3")) return number >= 100;
  if (begins(opcode, "add.") || begins(opcode, "sub.") || begins(opcode, "fma.")) {
    return number >= 100 || !(holds(opcode, ".f32.f16") || holds(opcode, ".f32.bf16"));
  }
  if (begins(opcode, "cvt.")) {
    if (begins(opcode, "cvt.rs.")) return suffix == "a" && (number == 100 || number == 103 || number == 107);
    if (holds(opcode, "s2f6")) return suffix == "a" && number >= 100;
    if (holds(opcode, "ue5m3")) return specific && number == 107;
    if (holds(opcode, "e2m1x") || holds(opcode, "e2m3x") || holds(opcode, "e3m2x") || holds(opcode, "ue8m0")) {
      return specific && number >= 100;
    }
    if (holds(opcode, "bf16x2.e") || holds(opcode, "x2.bf16x2")) return specific && number >= 100;
    if (holds(opcode, "satfinite.tf32") && !holds(opcode, "rna")) return number >= 100;
  }
  if (begins(opcode, "multimem.")) {
    if (holds(opcode, ".e4m3") || holds(opcode, ".e5m2")) return specific && number >= 100;
    return number >= (holds(opcode, ".cp_mask") ? 100 : 90);
  }
  if (begins(opcode, "st.bulk")) return number >= 100;
  if (begins(opcode, "ld.") || begins(opcode, "st.")) {  // of 256 bits
    const bool wide = holds(opcode, ".v4.b64") || holds(opcode, ".v4.u64") || holds(opcode, ".v4.s64") ||
                      holds(opcode, ".v4.f64") || holds(opcode, ".v8.");
    return !wide || number >= 100;
  }
  if (begins(opcode, "redux.") && holds(opcode, ".f32")) return specific && number >= 100 && number < 120;
  if (begins(opcode, "ldmatrix.") || begins(opcode, "stmatrix.")) {
    return holds(opcode, ".b16") || (specific && number >= 100);
  }
  return true;
}

}  // namespace msa_ops::emulator::ptx

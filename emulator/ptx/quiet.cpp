#include "quiet.hpp"

#include <string>
#include <unordered_set>

namespace msa_ops::emulator::ptx {

bool is_quiet(const Form& form) {
  static const std::unordered_set<std::string> kQuiet{
      "abs", "activemask", "add", "addc", "and", "bfe", "bfi", "bfind", "bmsk", "bra", "brev", "brx", "call", "clz",
      "cnot", "copysign", "cos", "cvt", "cvta", "div", "dp2a", "dp4a", "elect", "ex2", "exit", "fence", "fma", "fns",
      "getctarank", "isspacep", "ld", "ldmatrix", "ldu", "lg2", "lop3", "mad", "mad24", "madc", "mapa", "match", "max",
      "membar", "min", "mov", "movmatrix", "mul", "mul24", "nanosleep", "neg", "not", "or", "popc", "prmt", "rcp",
      "redux", "rem", "ret", "rsqrt", "sad", "selp", "set", "setp", "shf", "shfl", "shl", "shr", "sin", "slct", "sqrt",
      "sub", "subc", "szext", "tanh", "testp", "vote", "xor"};
  if (form.reports_changes) return true;
  const std::string& opcode = form.opcode;
  if (opcode.compare(0, 9, "bar.warp.") == 0) return true;
  if (opcode.compare(0, 18, "mbarrier.test_wait") == 0 || opcode.compare(0, 17, "mbarrier.try_wait") == 0) return true;
  return kQuiet.count(opcode.substr(0, opcode.find_first_of(". "))) != 0;
}

}  // namespace msa_ops::emulator::ptx

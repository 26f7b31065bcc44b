#include "vocabulary.hpp"

#include <cctype>
#include <unordered_set>

namespace msa_ops::emulator::ptx {
namespace {

std::string first_part(const std::string& name) { return name.substr(0, name.find('.')); }

// %envreg7, %pm3, %pm3_64, %reserved_smem_offset_1
bool is_numbered(std::string name) {
  if (name.size() > 3 && name.compare(name.size() - 3, 3, "_64") == 0) name.resize(name.size() - 3);
  std::size_t start = name.size();
  while (start > 0 && std::isdigit(static_cast<unsigned char>(name[start - 1]))) --start;
  const std::string stem = name.substr(0, start);
  return start < name.size() && (stem == "%envreg" || stem == "%pm" || stem == "%reserved_smem_offset_");
}

}  // namespace

bool is_instruction(const std::string& opcode) {
  static const std::unordered_set<std::string> known{
      "abs", "activemask", "add", "addc", "alloca", "and", "applypriority", "atom", "bar", "barrier", "bfe", "bfi",
      "bfind", "bmsk", "bra", "brev", "brkpt", "brx", "call", "clusterlaunchcontrol", "clz", "cnot", "copysign",
      "cos", "cp", "createpolicy", "cvt", "cvta", "discard", "div", "dp2a", "dp4a", "elect", "ex2", "exit", "fence",
      "fma", "fns", "getctarank", "griddepcontrol", "isspacep", "istypep", "ld", "ldmatrix", "ldu", "lg2", "lop3",
      "mad", "mad24", "madc", "mapa", "match", "max", "mbarrier", "membar", "min", "mma", "mov", "movmatrix", "mul",
      "mul24", "multimem", "nanosleep", "neg", "not", "or", "pmevent", "popc", "prefetch", "prefetchu", "prmt", "rcp",
      "red", "redux", "rem", "ret", "rsqrt", "sad", "selp", "set", "setmaxnreg", "setp", "shf", "shfl", "shl", "shr",
      "sin", "slct", "sqrt", "st", "stackrestore", "stacksave", "stmatrix", "sub", "subc", "suld", "suq", "sured",
      "sust", "szext", "tanh", "tcgen05", "tensormap", "testp", "tex", "tld4", "trap", "txq", "vabsdiff", "vabsdiff2",
      "vabsdiff4", "vadd", "vadd2", "vadd4", "vavrg2", "vavrg4", "vmad", "vmax", "vmax2", "vmax4", "vmin", "vmin2",
      "vmin4", "vote", "vset", "vset2", "vset4", "vshl", "vshr", "vsub", "vsub2", "vsub4", "wgmma", "wmma", "xor"};
  return known.count(first_part(opcode)) != 0;
}

bool is_special_register(const std::string& name) {
  static const std::unordered_set<std::string> known{
      "%aggr_smem_size", "%clock", "%clock64", "%clock_hi", "%cluster_ctaid", "%cluster_ctarank", "%cluster_nctaid",
      "%cluster_nctarank", "%clusterid", "%ctaid", "%current_graph_exec", "%dynamic_smem_size", "%globaltimer",
      "%globaltimer_hi", "%globaltimer_lo", "%gridid", "%is_explicit_cluster", "%laneid", "%lanemask_eq",
      "%lanemask_ge", "%lanemask_gt", "%lanemask_le", "%lanemask_lt", "%nclusterid", "%nctaid", "%nsmid", "%ntid",
      "%nwarpid", "%reserved_smem_offset_begin", "%reserved_smem_offset_cap", "%reserved_smem_offset_end", "%smid",
      "%tid", "%total_smem_size", "%warpid"};
  const std::string first = first_part(name);
  return known.count(first) != 0 || is_numbered(first);
}

}  // namespace msa_ops::emulator::ptx

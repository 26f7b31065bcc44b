#include "vocabulary.hpp"

#include <algorithm>
#include <string_view>
#include <unordered_set>

#include "opcodes.hpp"
#include "special.hpp"

namespace msa_ops::emulator::ptx {
namespace {

std::string first_part(const std::string& name) { return name.substr(0, name.find('.')); }

// Those of what is executed, and these: of textures and surfaces, of caches and of the order of memory, of types and
// operations that are not executed.
const std::unordered_set<std::string>& modifiers() {
  static const std::unordered_set<std::string> known = [] {
    std::unordered_set<std::string> made{
        "a1d", "a2d", "a2dms", "acube", "2dms", "cube", "base", "level", "grad", "zero", "clamp", "trap", "r", "g", "b",
        "a", "width", "height", "depth", "channel_data_type", "channel_order", "normalized_coords", "array_size",
        "num_mipmap_levels", "num_samples", "force_unnormalized_coords", "filter_mode", "addr_mode_0", "addr_mode_1",
        "addr_mode_2", "memory_layout", "texref", "samplerref", "surfref", "im2col", "im2col::w", "im2col::w::128",
        "unified", "nc", "ca", "cg", "cs", "lu", "cv", "wb", "wt", "weak", "volatile", "relaxed", "acquire", "release",
        "acq_rel", "sc", "mmio", "tile", "cta", "cluster", "gpu", "sys", "shared::cta", "param::func", "ignore_oob",
        "proxy", "v2", "v4", "v8", "e3m2", "e2m3", "e2m1", "e4m3", "e5m2", "ue8m0", "ue4m3", "s2", "u2", "s4", "u4",
        "p", "s8x4", "u8x4", "byte", "multicast", "thread", "full", "half", "cc", "pred"};
    for (const Form& form : all_forms()) {
      const std::string_view opcode = std::string_view(form.opcode).substr(0, form.opcode.find(' '));
      for (std::size_t at = opcode.find('.'); at < opcode.size();) {
        const std::size_t end = std::min(opcode.find('.', at + 1), opcode.size());
        made.emplace(opcode.substr(at + 1, end - at - 1));
        at = end;
      }
    }
    return made;
  }();
  return known;
}

// m16n8k16, m8n8
bool is_shape(std::string_view part) {
  for (const char letter : {'m', 'n', 'k'}) {
    if (part.empty()) return letter == 'k';
    if (part[0] != letter) return false;
    const std::size_t digits = std::min(part.find_first_not_of("0123456789", 1), part.size()) - 1;
    if (digits == 0) return false;
    part.remove_prefix(digits + 1);
  }
  return part.empty();
}

bool begins(std::string_view text, std::string_view start) { return text.substr(0, start.size()) == start; }

}  // namespace

std::string unknown_modifier(const std::string& opcode) {
  for (std::size_t at = opcode.find('.'); at < opcode.size();) {
    const std::size_t end = std::min(opcode.find('.', at + 1), opcode.size());
    const std::string part = opcode.substr(at + 1, end - at - 1);
    if (modifiers().count(part) == 0 && !is_shape(part) && !begins(part, "L1::") && !begins(part, "L2::") &&
        !begins(part, "collector::")) {
      return "." + part;
    }
    at = end;
  }
  return "";
}

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
  return known.count(first_part(name)) != 0 || find_special(name);
}

}  // namespace msa_ops::emulator::ptx

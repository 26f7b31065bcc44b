#include "opcodes.hpp"

#include <algorithm>
#include <stdexcept>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

namespace msa_ops::emulator::ptx {
namespace {

// Caching hints, and orders and scopes of the memory model: one instruction of one warp is done before the next begins,
// everywhere, so that every access is as strong as the strongest. What the order says is in Instruction::order.
bool is_implied(std::string_view modifier) {
  static const std::unordered_set<std::string_view> implied{
      "nc",      "ca",      "cg",      "cs",      "lu",      "cv",  "wb",  "wt",  "weak",
      "volatile", "relaxed", "acquire", "release", "acq_rel", "sc", "mmio", "tile", "cta", "cluster", "gpu", "sys"};
  return implied.count(modifier) != 0 || modifier.substr(0, 4) == "L1::" || modifier.substr(0, 4) == "L2::" ||
         modifier.substr(0, 11) == "collector::";
}

// Names of the same space.
std::string_view plain(std::string_view part) {
  return part == "shared::cta" ? "shared" : part == "param::entry" || part == "param::func" ? "param" : part;
}

}  // namespace

const Forms& all_forms() {
  static const Forms* forms = [] {
    auto* made = new Forms();
    for (const auto add : {
             add_memory_forms,
             add_atomic_forms,
             add_wide_atomic_forms,
             add_warp_forms,
             add_control_forms,
             add_mma_forms,
             add_wmma_forms,
             add_matrix_move_forms,
             add_wgmma_forms,
             add_tensor_memory_forms,
             add_tcgen05_mma_forms,
             add_mbarrier_forms,
             add_async_forms,
             add_cache_forms,
             add_store_bulk_forms,
             add_cluster_forms,
             add_tensor_forms,
             add_launch_forms,
             add_multimem_forms,
         }) {
      add(*made);
    }
    // Arithmetic does not care for values; whoever decides, addresses or stores by them does.
    Forms arithmetic;
    for (const auto add : {
             add_integer_forms,
             add_float_forms,
             add_half_forms,
             add_approximate_forms,
             add_rounded_forms,
             add_packed_forms,
             add_rare_integer_forms,
             add_rare_compare_forms,
             add_compare_forms,
             add_convert_forms,
             add_narrow_conversion_forms,
             add_stochastic_forms,
             add_general_conversion_forms,
             add_move_forms,
             add_video_forms,
         }) {
      add(arithmetic);
    }
    for (Form& form : arithmetic) {
      if (form.undefined == Form::Undefined::kRefused) form.undefined = Form::Undefined::kSpreads;
    }
    made->insert(made->end(), arithmetic.begin(), arithmetic.end());
    std::sort(made->begin(), made->end(), [](const Form& a, const Form& b) { return a.opcode < b.opcode; });
    for (std::size_t i = 1; i < made->size(); ++i) {
      if ((*made)[i].opcode == (*made)[i - 1].opcode) throw std::logic_error("opcode twice: " + (*made)[i].opcode);
    }
    return made;
  }();
  return *forms;
}

SplitOpcode without_implied(const std::string& opcode) {
  const std::string_view kind = std::string_view(opcode).substr(0, opcode.find('.'));
  static const std::unordered_set<std::string_view> kinds{
      "ld", "st", "atom", "red", "ldmatrix", "stmatrix", "mbarrier", "cp", "prefetch", "prefetchu", "mapa",
      "getctarank", "clusterlaunchcontrol", "tcgen05", "ldu", "wmma", "multimem"};
  if (kinds.count(kind) == 0) return {opcode, ""};
  SplitOpcode made;
  const bool stores_away = opcode.compare(0, 9, "st.async.") == 0;  // whose plain .shared is the cluster's
  const std::size_t size = std::min(opcode.find(' '), opcode.size());  // what follows tells apart forms of operands
  for (std::size_t at = 0; at < size;) {
    const std::size_t end = std::min(opcode.find('.', at), size);
    const std::string_view part = std::string_view(opcode).substr(at, end - at);
    if (is_implied(part)) made.implied += "." + std::string(part);
    else if (stores_away && part == "shared") made.opcode += ".shared::cluster";
    else made.opcode += (made.opcode.empty() ? "" : ".") + std::string(plain(part));
    at = end + 1;
  }
  made.opcode += opcode.substr(size);
  return made;
}

const Form* find_form(const std::string& opcode) {
  static const auto* places = [] {
    auto* made = new std::unordered_map<std::string, const Form*>();
    for (const Form& form : all_forms()) (*made)[form.opcode] = &form;
    return made;
  }();
  const auto found = places->find(without_implied(opcode).opcode);
  return found == places->end() ? nullptr : found->second;
}

}  // namespace msa_ops::emulator::ptx

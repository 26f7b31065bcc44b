#include "special.hpp"

#include <algorithm>
#include <unordered_set>

#include "instruction.hpp"
#include "syntax.hpp"

namespace msa_ops::emulator::ptx {
namespace {

// The number behind a stem; nothing for other names, and for leading zeros.
std::optional<unsigned> number_after(const std::string& name, const std::string& stem) {
  if (name.compare(0, stem.size(), stem) != 0) return std::nullopt;
  const std::string digits = name.substr(stem.size());
  if (digits.empty() || digits.size() > 2 || (digits.size() == 2 && digits[0] == '0')) return std::nullopt;
  if (digits.find_first_not_of("0123456789") != std::string::npos) return std::nullopt;
  return static_cast<unsigned>(std::stoul(digits));
}

// Of what nobody sets, in bytes; 0 for other names.
unsigned width_of_unset(const std::string& name) {
  if (name == "%current_graph_exec") return 8;
  const bool wide = name.size() > 3 && name.compare(name.size() - 3, 3, "_64") == 0;
  const auto counter = number_after(wide ? name.substr(0, name.size() - 3) : name, "%pm");
  if (counter && *counter < 8) return wide ? 8 : 4;
  const auto parameter = number_after(name, "%envreg"), offset = number_after(name, "%reserved_smem_offset_");
  return (parameter && *parameter < 32) || (offset && *offset < 2) ? 4 : 0;
}

std::uint32_t row_bytes(unsigned width) { return width == 8 ? 8 * kLanes : 4 * kLanes; }

}  // namespace

const std::vector<SpecialRegister>& special_registers() {
  static const std::vector<SpecialRegister> table{
      {"%tid.x", 4}, {"%tid.y", 4}, {"%tid.z", 4}, {"%ntid.x", 4}, {"%ntid.y", 4}, {"%ntid.z", 4},
      {"%ctaid.x", 4}, {"%ctaid.y", 4}, {"%ctaid.z", 4}, {"%nctaid.x", 4}, {"%nctaid.y", 4}, {"%nctaid.z", 4},
      {"%clusterid.x", 4}, {"%clusterid.y", 4}, {"%clusterid.z", 4},
      {"%nclusterid.x", 4}, {"%nclusterid.y", 4}, {"%nclusterid.z", 4},
      {"%cluster_ctaid.x", 4}, {"%cluster_ctaid.y", 4}, {"%cluster_ctaid.z", 4},
      {"%cluster_nctaid.x", 4}, {"%cluster_nctaid.y", 4}, {"%cluster_nctaid.z", 4},
      {"%cluster_ctarank", 4}, {"%cluster_nctarank", 4}, {"%is_explicit_cluster", kPredicateWidth},
      {"%laneid", 4}, {"%warpid", 4}, {"%nwarpid", 4},
      {"%lanemask_eq", 4}, {"%lanemask_lt", 4}, {"%lanemask_le", 4}, {"%lanemask_gt", 4}, {"%lanemask_ge", 4},
      {"%smid", 4}, {"%nsmid", 4}, {"%gridid", 8}, {"%dynamic_smem_size", 4}, {"%total_smem_size", 4},
      {"%aggr_smem_size", 4}, {"%reserved_smem_offset_begin", 4}, {"%reserved_smem_offset_end", 4},
      {"%reserved_smem_offset_cap", 4},
      {"%clock", 4}, {"%clock_hi", 4}, {"%clock64", 8}, {"%globaltimer", 8}, {"%globaltimer_lo", 4},
      {"%globaltimer_hi", 4}};
  return table;
}

std::optional<SpecialValue> find_special(const std::string& given) {
  std::string name = given;
  const std::size_t dot = name.rfind('.');
  if (dot != std::string::npos && dot + 2 == name.size() && is_special_vector(name.substr(0, dot))) {
    const std::size_t color = std::string("rgba").find(name.back());
    if (color != std::string::npos) name.back() = "xyzw"[color];
  }
  SpecialValue made;
  const std::string stem = name.substr(0, dot);
  const bool of_16_bits = stem == "%tid" || stem == "%ntid" || stem == "%ctaid" || stem == "%nctaid" || stem == "%gridid";
  if (dot != std::string::npos && name.back() == 'w' && is_special_vector(stem) && dot + 2 == name.size()) {
    made.is_zero = true;
    made.width = 4;
  } else if (const unsigned width = width_of_unset(name); width != 0) {
    made.is_zero = true;
    made.width = width;
  } else {
    const auto& table = special_registers();
    const auto found = std::find_if(table.begin(), table.end(),
                                    [&](const SpecialRegister& one) { return one.name == name; });
    if (found == table.end()) return std::nullopt;
    made.which = static_cast<Special>(found - table.begin());
    made.width = found->width;
  }
  made.least_width = of_16_bits ? 2 : made.width;
  return made;
}

bool is_special_vector(const std::string& name) {
  static const std::unordered_set<std::string> known{"%tid",       "%ntid",        "%ctaid",         "%nctaid",
                                                     "%clusterid", "%nclusterid", "%cluster_ctaid", "%cluster_nctaid"};
  return known.count(name) != 0;
}

std::uint32_t offset_of(Special which) {
  static const std::vector<std::uint32_t> offsets = [] {
    std::vector<std::uint32_t> made{0};
    for (const SpecialRegister& one : special_registers()) made.push_back(made.back() + row_bytes(one.width));
    return made;
  }();
  return offsets[static_cast<unsigned>(which)];
}

std::uint32_t special_bytes() { return offset_of(static_cast<Special>(special_registers().size())); }

}  // namespace msa_ops::emulator::ptx

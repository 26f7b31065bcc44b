#include "special.hpp"

#include "instruction.hpp"
#include "syntax.hpp"

namespace msa_ops::emulator::ptx {
namespace {

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

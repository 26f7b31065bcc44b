// The table of opcodes that the emulator executes. An opcode that is not in it is unsupported.
#pragma once

#include <string>
#include <vector>

#include "instruction.hpp"

namespace msa_ops::emulator::ptx {

using Forms = std::vector<Form>;

// One function a file of handlers.
void add_integer_forms(Forms& forms);
void add_float_forms(Forms& forms);
void add_half_forms(Forms& forms);
void add_approximate_forms(Forms& forms);
void add_rounded_forms(Forms& forms);
void add_packed_forms(Forms& forms);
void add_rare_integer_forms(Forms& forms);
void add_rare_compare_forms(Forms& forms);
void add_compare_forms(Forms& forms);
void add_convert_forms(Forms& forms);
void add_narrow_conversion_forms(Forms& forms);
void add_stochastic_forms(Forms& forms);
void add_general_conversion_forms(Forms& forms);  // last of the conversions
void add_move_forms(Forms& forms);
void add_memory_forms(Forms& forms);
void add_atomic_forms(Forms& forms);
void add_wide_atomic_forms(Forms& forms);
void add_warp_forms(Forms& forms);
void add_control_forms(Forms& forms);
void add_mma_forms(Forms& forms);
void add_wmma_forms(Forms& forms);
void add_matrix_move_forms(Forms& forms);
void add_wgmma_forms(Forms& forms);
void add_tensor_memory_forms(Forms& forms);
void add_tcgen05_mma_forms(Forms& forms);
void add_mbarrier_forms(Forms& forms);
void add_async_forms(Forms& forms);
void add_cache_forms(Forms& forms);
void add_store_bulk_forms(Forms& forms);
void add_cluster_forms(Forms& forms);
void add_tensor_forms(Forms& forms);
void add_launch_forms(Forms& forms);
void add_multimem_forms(Forms& forms);
void add_video_forms(Forms& forms);

// All forms, by opcode ascending. `mov` of a vector has names of its own: "mov.b32 pack2", "mov.b32 unpack2".
const Forms& all_forms();

// Modifiers of memory accesses that change nothing here (caching hints, orders, scopes), and the opcode without them,
// with one name for each state space.
struct SplitOpcode {
  std::string opcode, implied;
};
SplitOpcode without_implied(const std::string& opcode);

// The form of an opcode, or nullptr. What is implied is left out before the look-up.
const Form* find_form(const std::string& opcode);

}  // namespace msa_ops::emulator::ptx

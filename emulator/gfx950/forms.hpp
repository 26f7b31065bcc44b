// Every instruction that the emulator executes, with its encoding and its function.
#pragma once

#include <vector>

#include "instruction.hpp"

namespace msa_ops::emulator::gfx950 {

// One group a file.
std::vector<Form> scalar_forms();
std::vector<Form> scalar_memory_forms();
std::vector<Form> vector_integer_forms();
std::vector<Form> vector_float_forms();
std::vector<Form> vector_half_forms();
std::vector<Form> compare_forms();
std::vector<Form> convert_forms();
std::vector<Form> cross_lane_forms();
std::vector<Form> lds_forms();
std::vector<Form> memory_forms();
std::vector<Form> matrix_forms();

const std::vector<Form>& all_forms();
// Null if there is none. VOP1, VOP2 and VOPC forms are also found by their number in VOP3.
const Form* find_form(Encoding encoding, unsigned number);

struct MatrixWork {
  const char* kind;     // f16 (and BF16), f32, f64, f8f6f4, i8
  std::uint64_t flops;  // two a product that is added; 0 for other instructions
};
MatrixWork matrix_work(const Form& form);

// Executes the function of a form with one to three sources and writes its result: for every VALU form without a
// handler of its own.
void execute_vector(Wave& wave, const Instruction& instruction);

}  // namespace msa_ops::emulator::gfx950

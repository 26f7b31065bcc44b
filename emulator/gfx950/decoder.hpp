// From bytes to instructions.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

#include "code_object.hpp"
#include "instruction.hpp"

namespace msa_ops::emulator::gfx950 {

// An instruction that the emulator does not execute, with its address.
struct Unsupported : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Decodes the instruction at a byte offset of the text. Throws Unsupported for what is unknown, CodeObjectError where
// it runs over the end.
Instruction decode(const std::vector<std::uint8_t>& text, std::uint32_t offset);

struct Program {
  std::vector<Instruction> instructions;
  std::unordered_map<std::uint32_t, std::uint32_t> index_of;  // by byte offset
};

// All instructions that a kernel can come to: its own code, and that of the functions of the file if it calls any.
// Throws Unsupported with a list of everything in it that is not executed.
Program decode_kernel(const CodeObject& object, const KernelImage& kernel);

}  // namespace msa_ops::emulator::gfx950

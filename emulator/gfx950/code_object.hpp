// A code object for gfx950: the ELF file that a compiler or linker made, as far as a launch needs it.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace msa_ops::emulator::gfx950 {

// The file is not a code object, or not one that can be executed.
struct CodeObjectError : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

// The 64 bytes that describe a kernel to the hardware.
struct KernelDescriptor {
  std::uint32_t group_segment_bytes;
  std::uint32_t private_segment_bytes;
  std::uint32_t kernarg_bytes;
  std::uint32_t rsrc1, rsrc2, rsrc3;
  std::uint16_t properties;
  std::uint16_t preload;

  unsigned num_vgprs() const { return ((rsrc1 & 63) + 1) * 8; }  // with accumulators
  unsigned accumulators_at() const { return ((rsrc3 & 63) + 1) * 4; }
  unsigned num_user_sgprs() const { return rsrc2 >> 1 & 31; }
  bool flushes_denormals() const { return (rsrc1 >> 16 & 3) != 3; }
  bool dx10_clamp() const { return (rsrc1 >> 21 & 1) != 0; }
  bool ieee_mode() const { return (rsrc1 >> 23 & 1) != 0; }
};

struct KernelArgument {
  std::uint32_t offset;
  std::uint32_t bytes;
  std::string kind;  // by_value, global_buffer, hidden_block_count_x, ...
};

struct KernelImage {
  std::string name;
  KernelDescriptor descriptor;
  std::uint32_t entry;  // offset in the text
  std::uint32_t bytes;  // of its code; 0 if the symbol does not say
  std::vector<KernelArgument> arguments;
  std::uint32_t most_threads = 0;  // of a workgroup, for which its registers were divided; 0 if it is not said
};

struct CodeObject {
  std::vector<std::uint8_t> text;
  std::uint64_t text_address = 0;
  std::vector<KernelImage> kernels;
  struct Function {
    std::uint32_t offset, bytes;
  };
  std::vector<Function> functions;  // all of them, kernels too
};

// Reads a linked or a relocatable file. Throws CodeObjectError.
CodeObject read_code_object(const std::uint8_t* data, std::size_t bytes);

}  // namespace msa_ops::emulator::gfx950

// What a kernel is once its text has been checked: instructions, and the places of all that they use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "../device/global_memory.hpp"
#include "calls.hpp"
#include "instruction.hpp"
#include "syntax.hpp"

namespace msa_ops::emulator::ptx {

struct Prepared {
  std::vector<Register> registers;
  std::size_t register_bytes = 0;
  std::vector<unsigned char> constants;
  std::vector<Instruction> instructions;
  std::vector<std::string_view> written;  // each of them, in the text
  std::uint32_t end = 0;                  // past the kernel's own last instruction; functions follow
  std::vector<CallSite> call_sites;
  bool uses_wgmma = false;
  std::size_t static_shared = 0;                 // bytes
  std::vector<std::uint64_t> shared_addresses;   // see Kernel::shared_addresses
  std::size_t local_bytes = 0;                   // of each thread
  std::vector<std::unique_ptr<unsigned char[]>> variable_bytes;
  std::uint64_t constant_window = 0;             // the upper 32 bits of addresses of .const
  std::vector<Allocation> variables;             // in them, and the kernel's parameters
};

}  // namespace msa_ops::emulator::ptx

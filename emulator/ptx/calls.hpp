// Calls of functions, as a kernel holds them.
//
// A function has registers and local memory of its own, once for each thread: it cannot be called within itself. Its
// arguments and results are copied between the caller's places and its own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "instruction.hpp"

namespace msa_ops::emulator::ptx {

// A function pointer is this and the function's number.
constexpr std::uint64_t kFunctionWindow = std::uint64_t{1} << 58;
// The address of a kernel is this and its number in the module: nothing can be done with it here.
constexpr std::uint64_t kKernelWindow = std::uint64_t{1} << 59;

struct CallCopy {
  struct Place {
    Operand value{};          // a register or a constant, if present
    std::uint64_t local = 0;  // else an address in local memory
  };
  Place from, to;
  std::uint64_t bytes = 0;
};

struct Call {
  std::string name;
  std::uint64_t number = 0;      // of the function
  std::uint32_t first = 0;       // instruction of the function
  std::uint32_t end = 0;         // past its last one
  bool is_external = false;      // it has no instructions: one of those that the emulator knows by name
  std::vector<CallCopy> arguments, results;
  // What has no value when the function begins: registers, and a range of local memory.
  std::uint32_t first_register = 0, end_register = 0;
  std::uint64_t first_local = 0, end_local = 0;
};

struct CallSite {
  Operand pointer{};          // of an indirect call, if present
  std::vector<Call> targets;  // one, or all that the pointer may name
};

class PtxWarp;

// A function of CUDA's device runtime, for these lanes: `vprintf` prints on the standard output, `__assertfail` is a
// fault. Results are in the call's places. False for a name that is none.
bool knows_external(const std::string& name);
void call_external(PtxWarp& warp, const Instruction& instruction, const Call& call, Mask lanes);

}  // namespace msa_ops::emulator::ptx

// What the emulator refuses to execute, and where it happened.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

namespace msa_ops::emulator {

enum class FaultKind {
  kUninitializedRegister,
  kUninitializedShared,
  kUninitializedLocal,
  kOutOfBounds,
  kMisaligned,
  kReadOnly,
  kMulticast,   // a multicast address without multimem, or multimem without one
  kDivergence,  // lanes of a warp are apart where the instruction wants them together
  kBarrier,     // a barrier used against its rules
  kRace,        // two accesses of shared memory that nothing orders
  kProxy,       // ordered, but without the fence between the generic and the asynchronous proxy
  kRegisterPool,  // registers given back or asked for against the rules
  kMbarrier,    // an mbarrier used against its rules
  kAsync,       // an asynchronous operation used against its rules
  kExited,      // shared memory of a block that has ended
  kTensorMemory,  // used against its rules, or leaked
  kUninitializedTensor,
  kDeadlock,
  kDescriptor,  // an operand that says how a matrix instruction is to be done is wrong
  kInFlight,    // a register that asynchronous work still uses
  kWgmmaFence,  // registers given to wgmma without a wgmma.fence
  kMissingWait,  // a register or memory used before the wait for the operation that fills it (gfx950)
  kMissingWriteBack,     // a read of what another workgroup stored and has not made visible (gfx950)
  kMissingInvalidation,  // a read of what a cache may hold of old (gfx950)
  kWaitStates,   // too few instructions between two that the hardware does not keep apart (gfx950)
  kIllegal,      // an instruction that the hardware cannot execute in this state (gfx950)
  kGridWait,    // memory of an earlier launch used without griddepcontrol.wait
  kTrap,        // the kernel itself ended the launch
  kAssertion,   // one of the kernel's own does not hold
  kLimit,       // more instructions than the launch may take
};

// A read that comes too early is found as such before it can be found as a race.
inline constexpr const char* kNeverWritten =
    "read of a byte that nothing has written so far (if another warp or a copy should have, a barrier or wait is missing)";

inline const char* name_of(FaultKind kind) {
  switch (kind) {
    case FaultKind::kUninitializedRegister: return "uninitialized register";
    case FaultKind::kUninitializedShared: return "uninitialized shared memory";
    case FaultKind::kUninitializedLocal: return "uninitialized local memory";
    case FaultKind::kOutOfBounds: return "out of bounds";
    case FaultKind::kMisaligned: return "misaligned";
    case FaultKind::kReadOnly: return "read only";
    case FaultKind::kMulticast: return "multicast address";
    case FaultKind::kDivergence: return "divergence";
    case FaultKind::kBarrier: return "barrier";
    case FaultKind::kRace: return "race";
    case FaultKind::kProxy: return "missing proxy fence";
    case FaultKind::kRegisterPool: return "register pool";
    case FaultKind::kMbarrier: return "mbarrier";
    case FaultKind::kAsync: return "asynchronous operation";
    case FaultKind::kExited: return "exited block";
    case FaultKind::kUninitializedTensor: return "uninitialized tensor memory";
    case FaultKind::kTensorMemory: return "tensor memory";
    case FaultKind::kDeadlock: return "deadlock";
    case FaultKind::kDescriptor: return "descriptor";
    case FaultKind::kInFlight: return "register in flight";
    case FaultKind::kWgmmaFence: return "wgmma fence";
    case FaultKind::kMissingWait: return "missing wait";
    case FaultKind::kMissingWriteBack: return "missing write-back";
    case FaultKind::kMissingInvalidation: return "missing invalidation";
    case FaultKind::kWaitStates: return "wait states";
    case FaultKind::kIllegal: return "illegal instruction";
    case FaultKind::kGridWait: return "missing grid wait";
    case FaultKind::kTrap: return "trap";
    case FaultKind::kAssertion: return "assertion";
    case FaultKind::kLimit: return "limit";
  }
  return "";
}

// Thrown where the mistake is seen; the executor adds the place and throws a Fault.
struct Violation {
  FaultKind kind;
  std::string message;
  int lane = -1;  // -1: not of one lane
  std::optional<std::uint64_t> address{};
  std::int64_t pc = -1;  // of the instruction at fault, if it is not the present one
};

// FILE:LINE of the source that a line of the program text was made of; "" where the text does not say.
struct SourcePlace {
  std::string whole;  // with all folders
  std::string shown;  // as short as it may be
};

struct Place {
  std::string kernel;
  int line = 0;      // of the program text; 0 where no single one is at fault
  std::string text;  // the instruction, as written
  std::array<unsigned, 3> block{};
  int warp = -1;
  bool by_address = false;  // `line` is an offset in machine code
  SourcePlace source{};
  std::shared_ptr<const std::string> program_text{};  // in which `line` counts

  std::string where() const;  // for messages: "line 12 (kernel.py:34)", or "line 12"
};

class Fault : public std::runtime_error {
 public:
  Fault(const Violation& violation, const Place& place)
      : std::runtime_error(describe(violation, place)), violation(violation), place(place) {}

  const Violation violation;
  const Place place;

 private:
  static std::string describe(const Violation& violation, const Place& place);
};

}  // namespace msa_ops::emulator

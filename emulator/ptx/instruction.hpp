// An instruction ready to be executed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "../device/elsewhere.hpp"

namespace msa_ops::emulator::ptx {

using Mask = std::uint32_t;  // a bit a lane
constexpr unsigned kLanes = 32;
constexpr Mask kAllLanes = 0xffffffffU;

class PtxWarp;
struct Instruction;
using Handler = void (*)(PtxWarp& warp, const Instruction& instruction, Mask lanes);

// Where an operand's values stand: 32 of them beside each other, whatever the operand is. A predicate is one Mask.
struct Operand {
  enum class Space : std::uint8_t { kRegisters, kConstants, kSpecial };  // kSpecial: of this warp, not to be written
  Space space = Space::kRegisters;
  std::uint8_t width = 0;      // bytes a lane
  bool negated = false;        // predicates
  bool present = false;
  std::uint32_t offset = 0;    // bytes from the start of the space
  std::uint32_t index = 0;     // kRegisters: of the register
  std::uint32_t addend = 0;    // S, G, T of Form::operands: bytes, or columns and lanes, beyond the register's value
};

// kCluster is the shared memory of any block of the cluster, kGeneric any of global, shared and local memory.
enum class MemorySpace : std::uint8_t { kNone, kGlobal, kShared, kParameter, kCluster, kGeneric, kLocal, kConstant };

// What the modifiers of an access say about its order. kDefault is weak for accesses; arrivals release, waits acquire.
enum class Order : std::uint8_t { kDefault, kRelaxed, kAcquire, kRelease, kAcquireRelease };

// What an opcode is: how it is written and what executes it.
struct Form {
  std::string opcode;
  // Operands in order, separated by blanks. A leading `=` marks a destination.
  //   p        predicate      q of 16 bytes      1 2 4 8  register of that many bytes, or an immediate
  //   w2 ...   register of at least that many bytes      v   memory operand: `count` registers of >= `element` bytes
  //   A        address; its offset is the instruction's
  //   S G T    address in shared, global, tensor memory, with an offset of its own
  //   M3       [tensor map, {3 coordinates}]: the address, then the coordinates
  //   s1 s2 s4 register of 4 bytes or a part of it, or 2 or 4 parts of it (selector.hpp); n1: a negative one too
  //   L        label       J  a list of labels       4*8      vector of 8 registers of 4 bytes; 4,2: of 4 and of 2 bytes
  //   ~4*8     registers whose use the handler checks itself
  //   4? p?    may be missing            =4|p? =p|p?     a second destination may follow after `|`
  std::string operands;
  Handler handler = nullptr;
  MemorySpace memory = MemorySpace::kNone;
  std::uint8_t element = 0;  // bytes
  std::uint8_t count = 1;
  enum class Control : std::uint8_t { kNone, kBranch, kReturn, kCall } control = Control::kNone;
  std::uint32_t variant = 0;  // a number of the handler's own
  // What happens when a source register has no value: it is a fault; the results have no value in those lanes; or the
  // handler asks (PtxWarp::undefined) and says which results have none (leave_undefined).
  enum class Undefined : std::uint8_t { kRefused, kSpreads, kHandled } undefined = Undefined::kRefused;
  bool replaces = false;         // an atomic whose result alone depends on what was there
  bool reports_changes = false;  // the handler says when it has changed memory (quiet.hpp)
};

struct Instruction {
  const Form* form = nullptr;
  Handler handler = nullptr;
  std::vector<Operand> operands;       // as in Form::operands; vectors take one place an element
  std::uint64_t offset = 0;            // of the address operand; a parameter's or variable's place is in it
  std::uint32_t target = 0;            // branches: instruction; calls: place in Kernel::call_sites
  std::vector<std::uint32_t> targets;  // of a branch by an index
  std::uint32_t reconvergence = 0;     // branches: where lanes that part meet again
  Operand guard{};
  Order order = Order::kDefault;
  Reach scope = Reach::kDevice;        // of an atomic, a strong access or a fence
  bool read_only = false;              // what it reads nobody may write in the launch
  bool changes = true;                 // what warps share, each time (quiet.hpp)
  bool moves = false;                  // it is a whole register's value to another one, or a constant
  bool ignored = false;                // a test or try of an mbarrier whose result decides nothing
  bool late = false;                   // a read that counts when a store uses what came of it (dropped_reads.hpp)
  bool drops_late = false;             // where no such store follows any more
  int line = 0;
  std::vector<std::uint32_t> late_reads;  // of such a store: which ones count then
  std::vector<std::uint32_t> sources;  // registers that must have been written
  std::vector<std::uint32_t> destinations;
};

}  // namespace msa_ops::emulator::ptx

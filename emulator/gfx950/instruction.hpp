// An instruction of gfx950, decoded: what it reads and writes, and the function that executes it.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace msa_ops::emulator::gfx950 {

constexpr unsigned kLanes = 64;
using Mask = std::uint64_t;  // a bit a lane
constexpr Mask kAllLanes = ~Mask{0};

// Scalar registers by their number in an operand.
constexpr unsigned kNumSgprs = 102;
constexpr unsigned kFlatScratch = 102;
constexpr unsigned kVcc = 106;
constexpr unsigned kM0 = 124;
constexpr unsigned kExec = 126;
// Rows of the vector register file: v0 to v255, then a0 to a255.
constexpr unsigned kAccumulators = 256;

enum class Encoding : std::uint8_t {
  kSop1, kSop2, kSopc, kSopk, kSopp, kSmem, kVop1, kVop2, kVopc, kVop3, kVop3p, kMfma, kDs, kFlat, kGlobal, kScratch,
  kMubuf,
};

// How an operand's bits are meant: gives its width, the value of inline constants, and what modifiers do.
enum class Type : std::uint8_t {
  kNone,
  kB32,   // integers and bits; 32-bit
  kF32,
  kB8,    // low byte
  kB16,   // low half, or high half by op_sel
  kF16,
  kB64,
  kF64,
  kPkF16,  // two halves of a register
  kPkB16,
  kPkF32,  // two registers
  kB96,
  kB128,
  kB192,
  kB256,
  kB512,
  kB1024,
  kMask,  // 64-bit scalar mask: carries, conditions
};

unsigned dwords_of(Type type);

struct Operand {
  enum class Kind : std::uint8_t { kNone, kVector, kScalar, kConstant, kScc, kLiteralFree };
  Kind kind = Kind::kNone;
  Type type = Type::kNone;
  std::uint8_t dwords = 0;
  std::uint16_t index = 0;      // row or scalar register
  std::uint64_t constant = 0;
  bool negate = false;          // of the low half of a packed operand
  bool negate_high = false;
  bool absolute = false;
  bool high = false;            // op_sel: the low result takes the high half
  bool high_for_high = true;    // op_sel_hi of packed operands
  std::uint8_t select = 6;      // SDWA: byte 0-3, word 4-5, dword 6
  bool extend = false;          // SDWA: with the sign
  bool modified = false;        // something of the above is not at its default
};

struct Range {
  std::uint16_t first = 0;
  std::uint16_t count = 0;
};

class Wave;
struct Instruction;
using Handler = void (*)(Wave&, const Instruction&);

// Lanes of one vector operation, its sources with all modifiers applied. A 64-bit operand's high words are 64 further.
struct VectorOperation {
  const std::uint32_t* a;
  const std::uint32_t* b;
  const std::uint32_t* c;
  std::uint32_t* d;    // results of all lanes, or what the destination holds where the form reads it
  Mask carry;          // of the mask operand, if the form has one
  Mask mask;           // result of forms that give one
  const Instruction& instruction;
  const Wave& wave;
};
using VectorFunction = void (*)(VectorOperation&);

enum FormFlag : std::uint32_t {
  kReadsDestination = 1 << 0,   // accumulates, or writes a part
  kReadsScc = 1 << 1,
  kWritesScc = 1 << 2,
  kReadsVcc = 1 << 3,           // as an implicit operand
  kWritesVcc = 1 << 4,          // VOP2 and VOPC: the mask result; VOP3 has it as an operand
  kTranscendental = 1 << 5,
  kSelfChecked = 1 << 6,        // the handler looks after uninitialised sources itself
  kBranch = 1 << 7,
  kWritesExec = 1 << 8,
  kPartial = 1 << 9,            // writes a part of the register chosen by op_sel
  kWritesMask = 1 << 10,        // result is a mask in scalar registers
  kSaturates = 1 << 11,         // clamp means integer saturation and the function does it
  kIgnoresExec = 1 << 12,
  kToLds = 1 << 13,             // a load whose destination is the LDS
  kCacheControl = 1 << 14,
  kHighHalf = 1 << 15,          // the upper half of the data register
  kPassesShift = 16,            // matrix: passes in bits 16-23, result registers in bits 24-31
};

// Of an instruction: what wait states depend on (wait_states.cpp).
enum Hazard : std::uint16_t {
  kDotProduct = 1 << 0,
  kPlacedResult = 1 << 1,    // a part of the register, by op_sel or SDWA
  kLaneMask = 1 << 2,        // a vector instruction that writes exec
  kAllLanesAtOnce = 1 << 3,  // reads lanes of its own choice, or all
  kFma64 = 1 << 4,
  kWideStore = 1 << 5,       // of more than 64 bits
};

struct Form {
  Encoding encoding;
  std::uint16_t number;
  const char* name;
  Type destination;
  std::array<Type, 3> sources;
  Handler handler;
  VectorFunction function;
  std::uint32_t flags;
};

enum class Dpp : std::uint8_t { kNo, kYes };

struct Instruction {
  const Form* form = nullptr;
  Handler handler = nullptr;
  std::uint32_t address = 0;   // from the start of the section
  std::uint32_t target = 0;    // of a branch, as an index
  std::int32_t immediate = 0;  // SOPK, SOPP, offsets of memory
  Operand destination;
  Operand mask_destination;    // of VOP3 forms with a carry, of compares
  std::array<Operand, 3> sources;
  Operand mask_source;
  Encoding encoding{};
  std::uint8_t size = 0;       // bytes
  std::uint16_t hazards = 0;
  std::uint8_t output_modifier = 0;
  bool clamp = false;
  bool sdwa = false;
  bool dpp = false;
  std::uint8_t destination_select = 6;
  std::uint8_t destination_unused = 0;  // 0 zero, 1 sign, 2 keep
  std::uint16_t dpp_control = 0;
  std::uint8_t dpp_row_mask = 15;
  std::uint8_t dpp_bank_mask = 15;
  bool dpp_bound = false;
  // memory
  bool offset_enable = false, index_enable = false, to_lds = false;
  bool polls = false;  // a read of the LDS that waits for another wave (polling.hpp)
  bool sc0 = false, sc1 = false, nt = false;
  std::uint8_t offset0 = 0, offset1 = 0;
  // matrix
  std::uint8_t broadcast_size = 0, broadcast_id = 0, b_layout = 0;  // cbsz, abid, blgp
  bool scaled = false;
  std::array<Operand, 2> scales;
  std::array<std::uint8_t, 2> scale_bytes{};
  std::uint32_t word0 = 0, word1 = 0;
  // What must be initialised before, and what is afterwards.
  std::array<Range, 6> vector_reads{};
  std::array<Range, 6> scalar_reads{};
  std::uint8_t num_vector_reads = 0, num_scalar_reads = 0;
  std::array<Range, 2> vector_writes{};
  std::array<Range, 3> scalar_writes{};
  std::uint8_t num_vector_writes = 0, num_scalar_writes = 0;
};

std::uint16_t hazards_of(const Instruction& instruction);

// "0x" and the digits.
std::string hex(std::uint64_t value);
// As an assembler would have it, without modifiers that are at their defaults.
std::string text_of(const Instruction& instruction);

}  // namespace msa_ops::emulator::gfx950

// A PTX module as written: declarations and statements, names of registers resolved to their declarations.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace msa_ops::emulator::ptx {

constexpr unsigned kPredicateWidth = 0;

// What a declaration says of the bits: those of .b32 may be anything.
enum class RegisterType : std::uint8_t { kBits, kInteger, kFloat, kHalf, kHalves };

struct Register {
  std::string name;
  unsigned width;  // bytes; kPredicateWidth for .pred
  RegisterType type = RegisterType::kBits;
};

struct Term {
  enum class Kind {
    kRegister,
    kInteger,
    kFloat32,  // bits of 0f...
    kFloat64,  // bits of 0d... or of a decimal fraction
    kName,     // a label, a variable, a parameter or a special register
    kVector,
    kList,        // (a, b) of a call
    kAddress,
  };
  Kind kind = Kind::kName;
  std::uint32_t index = 0;    // kRegister: in Entry::registers
  std::uint64_t value = 0;    // numbers; kAddress: the offset; kName: the distance from it
  bool is_subscript = false;  // kName: the distance is one of elements
  std::string name;           // kName
  bool negated = false;       // !p
  std::vector<Term> terms{};  // kVector, kList: elements; kAddress: the base, or nothing
  std::vector<Term> second{};  // p|q: q
  std::uint32_t selector = 0;  // kRegister: Selector::packed() of r.b0, -r and the like
};

struct Statement {
  std::string opcode;  // with all modifiers
  std::vector<Term> operands;
  int line;
  std::string_view written{};  // in the text, guard to last operand
  bool guarded = false;
  bool guard_negated = false;
  std::uint32_t guard = 0;  // register
  unsigned scope = 0;       // of Entry::scopes
};

// An initial value that is the address of a variable of global or constant memory or of a function, or a byte of it.
struct AddressValue {
  std::uint64_t at = 0;    // where it stands among the values
  std::uint8_t bytes = 0;  // there
  unsigned shift = 0;
  bool is_byte = false;
  bool may_be_function = false;
  std::uint64_t addend = 0;
  std::string name;
  int line = 0;
};

struct Variable {
  std::string name;
  std::uint64_t bytes;      // 0: the dynamic shared memory
  std::uint64_t alignment;
  std::vector<unsigned char> values{};  // it starts with these, and zeros; of global and constant variables
  std::vector<AddressValue> addresses{};  // in place of some of them
  std::uint64_t element_bytes = 0;        // of an array, for subscripts; 0: it is none
};

struct Parameter {
  std::string name;
  std::uint64_t bytes;
  std::uint64_t offset;
  std::string type{};  // ".f32"; of an array "", as it is handed over as bytes
};

struct Scope {
  int parent;                                // -1: none
  std::map<std::string, std::size_t> labels;  // to the statement that follows
  std::map<std::string, std::vector<Term>> tables{};  // .branchtargets
};

// What a kernel or a function executes.
struct Body {
  std::string name;
  int line = 0;
  std::vector<Register> registers;
  std::vector<Variable> shared;  // declared in the body
  std::vector<Variable> local;   // and parameters of calls, each under a name of its own
  std::vector<Scope> scopes;
  std::vector<Statement> statements;
};

struct Entry : Body {
  std::vector<Parameter> parameters;
  std::array<unsigned, 3> required_threads{};  // .reqntid; 0: any
  unsigned max_threads = 0;                    // .maxntid; 0: any
  unsigned blocks_a_multiprocessor = 0;        // .minnctapersm; 0: it does not say
  unsigned max_registers = 0;                  // .maxnreg; 0: it does not say
  std::array<unsigned, 3> required_cluster{};  // .reqnctapercluster; 0: any
  unsigned most_cluster_blocks = 0;            // .maxclusterrank; 0: it does not say
  bool explicit_cluster = false;               // .explicitcluster
};

// A result or an argument of a function: a variable of Body::local, or a register.
struct Formal {
  std::string name;
  std::uint64_t bytes = 0;
  bool in_register = false;
  std::uint32_t index = 0;  // of the register
};

struct Function : Body {
  std::vector<Formal> results, arguments;
  bool is_defined = false;  // it has a body
};

struct Module {
  std::string target;
  std::vector<Variable> shared;
  std::vector<Variable> global;
  std::vector<Variable> constant;
  std::vector<Entry> entries;
  std::map<std::string, Function> functions;
};

}  // namespace msa_ops::emulator::ptx

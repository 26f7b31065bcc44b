#include "operand_types.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <unordered_map>

#include "error.hpp"
#include "vector_elements.hpp"

namespace msa_ops::emulator::ptx {
namespace {

enum class Takes {
  kAnything,
  kBits,         // .b32: every register; integers, floats of as many bits
  kBitsOnly,     // registers that say nothing of what they hold; no literals
  kWords,        // every register of four bytes; as literals fp32
  kIntegers,
  kCounts,       // integers, and no pairs of halves
  kFloats,
  kSingles,      // the same of fp32, with literals of fp32 alone
  kElement,      // of a vector of floats: every register; floats of fp32, anything of fp64, nothing of fp16
  kHalves,       // fp16, one or two
  kPredicate,
};

struct Type {
  Takes takes = Takes::kAnything;
  unsigned width = 0;  // bytes
};

constexpr Type kAny{}, kCount{Takes::kCounts, 4}, kPredicate{Takes::kPredicate, 0}, kState{Takes::kIntegers, 8},
    kBitsOnly{Takes::kBitsOnly, 4}, kMask{Takes::kIntegers, 2};

const std::unordered_map<std::string_view, Type>& types() {
  static const std::unordered_map<std::string_view, Type> table = [] {
    std::unordered_map<std::string_view, Type> made{
        {"f16", {Takes::kHalves, 2}},     {"f16x2", {Takes::kHalves, 4}}, {"f32", {Takes::kFloats, 4}},
        {"f64", {Takes::kFloats, 8}},     {"bf16", {Takes::kBitsOnly, 2}}, {"bf16x2", {Takes::kBitsOnly, 4}},
        {"f32x2", {Takes::kBitsOnly, 8}}, {"tf32", {Takes::kBitsOnly, 4}}, {"pred", kPredicate},
        {"b8", {Takes::kBits, 1}},        {"b16", {Takes::kBits, 2}},     {"b32", {Takes::kBits, 4}},
        {"b64", {Takes::kBits, 8}},       {"b128", {Takes::kBits, 16}},   {"b1", {Takes::kBits, 4}},
        {"s4", {Takes::kBits, 4}},        {"u4", {Takes::kBits, 4}},
        // two of 16 bits; two of 2 bits of cvt.pack
        {"s16x2", {Takes::kHalves, 4}},   {"u16x2", {Takes::kHalves, 4}}, {"s2", {Takes::kIntegers, 4}},
        {"u2", {Takes::kIntegers, 4}}};
    for (const auto& [s, u, width] : {std::tuple{"s8", "u8", 1U}, {"s16", "u16", 2U}, {"s32", "u32", 4U}, {"s64", "u64", 8U}}) {
      made[s] = made[u] = {Takes::kIntegers, width};
    }
    for (const char* narrow : {"e2m1x2", "e2m1x4", "e2m1p4x4", "e2m3x2", "e2m3x4", "e3m2x2", "e3m2x4", "e4m3x2", "e4m3x4",
                               "e5m2x2", "e5m2x4", "ue8m0x2", "ue8m0x4", "ue5m3x2", "ue5m3x4", "s2f6x2", "e4m3", "e5m2",
                               "e2m1", "e2m3", "e3m2"}) {
      made[narrow] = {Takes::kBitsOnly, 0};
    }
    return made;
  }();
  return table;
}

struct Opcode {
  std::string_view base;               // before the first dot
  std::vector<std::string_view> modifiers;
  std::vector<Type> types;             // that it names, in order
  bool vector = false;                 // of several elements in memory

  explicit Opcode(std::string_view opcode) {
    std::size_t at = opcode.find('.');
    base = opcode.substr(0, at);
    while (at < opcode.size()) {
      const std::size_t end = std::min(opcode.find('.', at + 1), opcode.size());
      const std::string_view modifier = opcode.substr(at + 1, end - at - 1);
      modifiers.push_back(modifier);
      if (const auto found = types_of().find(modifier); found != types_of().end()) types.push_back(found->second);
      vector = vector || modifier == "v2" || modifier == "v4" || modifier == "v8";
      at = end;
    }
  }
  bool has(std::string_view modifier) const {
    return std::find(modifiers.begin(), modifiers.end(), modifier) != modifiers.end();
  }
  Type type(std::size_t number) const { return number < types.size() ? types[number] : kAny; }
  Type last() const { return types.empty() ? kAny : types.back(); }

 private:
  static const std::unordered_map<std::string_view, Type>& types_of() { return ptx::types(); }
};

Type widened(Type type) { return {type.takes, 2 * type.width}; }

// Elements of vectors are bits for ptxas, if they are floats.
Type element(Type type) {
  if (type.takes == Takes::kFloats) return {Takes::kElement, type.width};
  return type.takes == Takes::kHalves && type.width == 2 ? Type{Takes::kElement, 2} : type;
}

// Of operands of matrix instructions: FP8, integers and bits are words.
Type of_matrix(Type type, bool accumulator) {
  if (type.takes == Takes::kBitsOnly && type.width >= 2) return kBitsOnly;
  if (type.takes == Takes::kIntegers) return accumulator ? kCount : Type{Takes::kWords, 4};
  if (type.takes == Takes::kFloats && type.width == 8) return {Takes::kElement, 8};
  if (type.takes == Takes::kHalves) return {Takes::kHalves, 4};
  if (type.takes == Takes::kFloats) return {Takes::kSingles, 4};
  return {Takes::kWords, 4};
}

// By a letter an operand: T the last type, F and S the first and the second, W twice as wide as the last, c a count,
// p a predicate, s 64 bits of integers, m 16 of them, w a word, - anything. The last letter stands for all that follow.
Type by_letters(const Opcode& opcode, std::string_view letters, std::size_t at) {
  switch (letters[std::min(at, letters.size() - 1)]) {
    case 'T': return opcode.last();
    case 'F': return opcode.type(0);
    case 'S': return opcode.type(1);
    case 'W': return widened(opcode.last());
    case 'c': return kCount;
    case 'p': return kPredicate;
    case 's': return kState;
    case 'm': return kMask;
    case 'w': return {Takes::kWords, 4};
    default: return kAny;
  }
}

const std::unordered_map<std::string_view, std::string_view>& letters_by_base() {
  static const std::unordered_map<std::string_view, std::string_view> table{
      {"abs", "T"},       {"activemask", "T"}, {"addc", "T"},   {"alloca", "T"},    {"and", "T"},     {"bfe", "TTcc"},
      {"bfi", "TTTcc"},   {"bfind", "cT"},     {"bmsk", "c"},   {"brev", "T"},      {"clz", "cT"},    {"cnot", "T"},
      {"copysign", "T"},  {"cos", "T"},        {"cvta", "T"},   {"div", "T"},       {"dp2a", "cFSc"}, {"dp4a", "cFSc"},
      {"ex2", "T"},       {"fns", "T"},        {"lg2", "T"},    {"lop3", "TTTTc-"}, {"mad24", "T"},   {"madc", "T"},
      {"mapa", "TTc"},    {"match", "cTc"},    {"max", "T"},    {"min", "T"},       {"mul24", "T"},   {"nanosleep", "c"},
      {"neg", "T"},       {"not", "T"},        {"or", "T"},     {"popc", "cT"},     {"prmt", "T"},    {"rcp", "T"},
      {"rem", "T"},       {"rsqrt", "T"},      {"sad", "T"},    {"selp", "TTTp"},   {"set", "FSSp"},  {"setp", "pTTp"},
      {"shf", "TTTc"},    {"shfl", "TTTTc"},   {"shl", "TTc"},  {"shr", "TTc"},     {"sin", "T"},     {"slct", "FFFS"},
      {"sqrt", "T"},      {"stackrestore", "T"}, {"stacksave", "T"}, {"subc", "T"}, {"szext", "TTc"}, {"tanh", "T"},
      {"testp", "pT"},    {"vote", "Tpc"},     {"xor", "T"},    {"atom", "T-TT-"},  {"red", "-T-"},   {"ld", "T-"},
      {"ldu", "T-"},      {"st", "-T-"},       {"getctarank", "cT"}, {"isspacep", "ps"}, {"movmatrix", "w"}, {"stmatrix", "-w"}, {"ldmatrix", "w-"}, {"clusterlaunchcontrol", "T-"}};
  return table;
}

Type of_mbarrier(const Opcode& opcode, std::size_t at) {
  const std::string_view what = opcode.modifiers.empty() ? "" : opcode.modifiers[0];
  if (what == "init" || what == "expect_tx" || what == "complete_tx") return by_letters(opcode, "-c", at);
  if (what == "arrive" || what == "arrive_drop") return by_letters(opcode, "s-c", at);
  if (what == "pending_count") return by_letters(opcode, "cs", at);
  return by_letters(opcode, opcode.has("parity") ? "p-c" : "p-sc", at);
}

Type of_cvt(const Opcode& opcode, std::size_t at) {
  if (at == 0) return opcode.has("pack") ? Type{Takes::kIntegers, 4} : opcode.type(0);
  if (at == 1) return opcode.type(1);
  if (opcode.has("pack")) return at == 2 ? opcode.type(1) : Type{Takes::kBits, 4};
  const bool random = opcode.has("rs");
  const Type source = opcode.type(1);
  if (source.takes == Takes::kFloats && (!random || (at == 2 && opcode.type(0).width == 4))) return source;
  return kBitsOnly;
}

// One type each; a result that is also added at the end is named once.
Type of_several(const Opcode& opcode, std::size_t at, std::size_t operands) {
  const std::size_t count = opcode.types.size();
  if (count == 1) return opcode.types[0];
  if (count < operands && at + 1 == operands) return opcode.types[0];
  return opcode.types[std::min(at, count - 1)];
}

Type of_mma(const Opcode& opcode, std::size_t at) {
  if (at > 3) return at == 4 ? Type{Takes::kWords, 4} : kAny;
  const bool sparse_bits = opcode.modifiers[0].compare(0, 2, "sp") == 0 && opcode.type(0).takes == Takes::kFloats &&
                           opcode.type(1).width >= 2;  // of these ptxas checks nothing
  if (sparse_bits) return kAny;
  const bool narrow = opcode.type(1).takes == Takes::kBitsOnly && opcode.type(1).width == 0;
  if (at == 3 && narrow) return opcode.type(3).takes == Takes::kHalves ? of_matrix(opcode.type(3), true) : opcode.type(3);
  return of_matrix(opcode.type(at), at == 0 || at == 3);
}

Type of_wgmma(const Opcode& opcode, std::size_t at, const Statement& statement) {
  if (opcode.modifiers.empty() || opcode.modifiers[0] != "mma_async") return kAny;
  if (at == 0) return of_matrix(opcode.type(0), true);
  if (at == 1) {
    if (statement.operands[1].kind != Term::Kind::kVector) return kState;
    const Type a = opcode.type(1);
    return a.takes == Takes::kIntegers || a.takes == Takes::kBits ? Type{Takes::kWords, 4} : Type{Takes::kHalves, 4};
  }
  return at == 2 ? kState : kAny;
}

Type of_wmma(const Opcode& opcode, std::size_t at) {
  if (opcode.modifiers.empty() || opcode.modifiers[0] != "mma") {
    const bool store = !opcode.modifiers.empty() && opcode.modifiers[0] == "store";
    return at == (store ? 1 : 0) ? of_matrix(opcode.last(), true) : kAny;
  }
  const std::size_t count = opcode.types.size();
  if (count == 2) return at == 1 || at == 2 ? Type{Takes::kHalves, 4} : of_matrix(opcode.type(at == 0 ? 0 : 1), true);
  if ((at == 1 || at == 2) && opcode.type(at).takes == Takes::kBitsOnly) return {Takes::kHalves, 4};
  if (at > 3) return kAny;
  const Type type = opcode.type(at);
  return type.takes == Takes::kBits ? kCount : of_matrix(type, true);  // of bits and of 4 bits too
}

Type of_tcgen05(const Opcode& opcode, std::size_t at, const Statement& statement) {
  constexpr Type kWord{Takes::kWords, 4};
  if (opcode.modifiers.empty()) return kAny;
  if (opcode.modifiers[0] == "ld") return at == 0 || (at == 1 && opcode.has("red")) ? kWord : kAny;
  if (statement.operands[at].kind == Term::Kind::kVector) return kWord;  // what st stores, masks of mma
  if (opcode.modifiers[0] == "alloc") return by_letters(opcode, "-c", at);
  if (opcode.modifiers[0] == "dealloc") return kCount;
  if (opcode.modifiers[0] == "commit") return by_letters(opcode, "-m", at);
  if (opcode.modifiers[0] == "cp") return by_letters(opcode, "-s", at);
  return kAny;
}

Type type_of(const Opcode& opcode, std::size_t at, const Statement& statement) {
  const std::string_view base = opcode.base;
  if (base == "add" || base == "sub" || base == "fma" || base == "mul" || base == "mad") {
    if (opcode.has("wide")) return by_letters(opcode, base == "mul" ? "WTT" : "WTTW", at);
    if (opcode.types.empty()) return kAny;
    return of_several(opcode, at, statement.operands.size());
  }
  if (base == "cvt") return of_cvt(opcode, at);
  if (base == "mbarrier") return of_mbarrier(opcode, at);
  if (base == "mma") return of_mma(opcode, at);
  if (base == "wgmma") return of_wgmma(opcode, at, statement);
  if (base == "wmma") return of_wmma(opcode, at);
  if (base == "tcgen05") return of_tcgen05(opcode, at, statement);
  if (base == "mov") return opcode.last();
  if (base == "redux") return opcode.last().takes == Takes::kFloats ? by_letters(opcode, "TTc", at) : kCount;
  if (base == "multimem") {
    if (opcode.modifiers[0] == "cp") return kAny;
    if (opcode.last().takes == Takes::kBitsOnly && opcode.last().width == 0) {  // FP8
      return opcode.vector ? Type{Takes::kWords, 4} : kAny;
    }
    return by_letters(opcode, opcode.modifiers[0] == "ld_reduce" ? "T-" : "-T-", at);
  }
  if (base == "bar" || base == "barrier") {
    if (opcode.has("cluster")) return kAny;
    if (opcode.has("red")) return by_letters(opcode, "Tc-", at);
    return kCount;
  }
  if (base[0] == 'v' && base != "vote") {  // video
    return base.compare(0, 4, "vset") == 0 && (at == 0 || at == 3) ? kCount : Type{Takes::kIntegers, 4};
  }
  const auto found = letters_by_base().find(base);
  return found != letters_by_base().end() ? by_letters(opcode, found->second, at) : kAny;
}

bool fits(Type type, const Register& reg) {
  const bool exact = reg.width == type.width || type.width == 0;
  switch (type.takes) {
    case Takes::kAnything: return true;
    case Takes::kPredicate: return true;  // the width tells
    case Takes::kBits:
    case Takes::kWords: return true;
    case Takes::kElement: return type.width != 4 || reg.type != RegisterType::kHalves;
    case Takes::kBitsOnly: return reg.type == RegisterType::kBits;
    case Takes::kIntegers:
      return reg.type == RegisterType::kBits || reg.type == RegisterType::kInteger || reg.type == RegisterType::kHalves;
    case Takes::kCounts: return reg.type == RegisterType::kBits || reg.type == RegisterType::kInteger;
    case Takes::kSingles:
    case Takes::kFloats: return reg.type == RegisterType::kBits || (reg.type == RegisterType::kFloat && exact);
    case Takes::kHalves:
      return reg.type == RegisterType::kBits ||
             ((reg.type == RegisterType::kHalf || reg.type == RegisterType::kHalves) && exact);
  }
  return true;
}

bool fits_literal(Type type, Term::Kind kind) {
  const bool integer = kind == Term::Kind::kInteger;
  switch (type.takes) {
    case Takes::kAnything: return true;
    case Takes::kBits: return integer || type.width == (kind == Term::Kind::kFloat32 ? 4 : 8);
    case Takes::kSingles:
    case Takes::kWords: return kind == Term::Kind::kFloat32;
    case Takes::kFloats: return !integer;
    case Takes::kElement: return type.width == 8 || (type.width == 4 && !integer);
    case Takes::kBitsOnly:
    case Takes::kHalves: return false;
    default: return integer;
  }
}

const char* name_of(Type type) {
  switch (type.takes) {
    case Takes::kBits:
    case Takes::kBitsOnly:
    case Takes::kWords: return "bits";
    case Takes::kIntegers:
    case Takes::kCounts: return "integers";
    case Takes::kFloats:
    case Takes::kSingles:
    case Takes::kElement: return "floats";
    case Takes::kHalves: return "fp16";
    case Takes::kPredicate: return "a predicate";
    case Takes::kAnything: break;
  }
  return "anything";
}

// What is written, the place of a stack, and parts of registers in video instructions of two and four lanes.
bool takes_no_literal(const Statement& statement, const Term& term) {
  const std::string_view opcode = statement.opcode;
  if (opcode.compare(0, 13, "stackrestore.") == 0) return true;
  const bool written = opcode.compare(0, 6, "wgmma.") == 0 || opcode.compare(0, 10, "tcgen05.ld") == 0;
  const std::vector<Term>& elements = statement.operands[0].terms;
  if (written && !elements.empty() && &term >= &elements.front() && &term <= &elements.back()) return true;
  const std::string_view base = opcode.substr(0, opcode.find('.'));
  return base[0] == 'v' && (base.back() == '2' || base.back() == '4') && term.kind == Term::Kind::kInteger;
}

void check(const Statement& statement, const std::vector<Register>& registers, const Term& term, Type type) {
  switch (term.kind) {
    case Term::Kind::kRegister: {
      const Register& reg = registers[term.index];
      if (reg.width == kPredicateWidth || fits(type, reg)) return;
      throw PtxError("register `" + reg.name + "` is of another type; `" + statement.opcode + "` takes " + name_of(type),
                         statement.line);
    }
    case Term::Kind::kInteger:
    case Term::Kind::kFloat32:
    case Term::Kind::kFloat64:
      if (fits_literal(type, term.kind) && !takes_no_literal(statement, term)) return;
      throw PtxError(std::string(term.kind == Term::Kind::kInteger ? "an integer" : "a float") + " as a literal; `" +
                         statement.opcode + "` takes " + name_of(type), statement.line);
    default: return;
  }
}

bool is_float(Type type) {
  return type.takes == Takes::kFloats || type.takes == Takes::kSingles || type.takes == Takes::kElement;
}

// Beside a register of bits a literal is bits too, be it an integer or a float; beside others it is what they are.
void check_vector(const Statement& statement, const std::vector<Register>& registers, const Term& vector, Type type,
                  bool in_memory) {
  const VectorRegisters like = check_elements(statement, vector.terms, registers);
  for (const Term& one : vector.terms) {
    const bool literal = one.kind == Term::Kind::kInteger || one.kind == Term::Kind::kFloat32 ||
                         one.kind == Term::Kind::kFloat64;
    const bool of_halves = in_memory && (type.takes == Takes::kHalves || type.takes == Takes::kBitsOnly ||
                                         (type.takes == Takes::kElement && type.width == 2));
    const bool wrong = is_float(type) && one.kind == Term::Kind::kInteger && (in_memory || &one == &vector.terms.back());
    if (literal && like.count > 0 && !of_halves && !wrong && !takes_no_literal(statement, one)) continue;
    check(statement, registers, one, type);
  }
}

}  // namespace

bool is_type(std::string_view modifier) { return types().count(modifier) != 0; }

RegisterType register_type(std::string_view type) {
  if (type == ".f32" || type == ".f64") return RegisterType::kFloat;
  if (type == ".f16") return RegisterType::kHalf;
  if (type == ".f16x2") return RegisterType::kHalves;
  return type.substr(0, 2) == ".u" || type.substr(0, 2) == ".s" ? RegisterType::kInteger : RegisterType::kBits;
}

namespace {

// Of the elements, where the operand is a vector.
Type element_of(const Opcode& opcode, std::size_t at, const Statement& statement) {
  const Type type = type_of(opcode, at, statement);
  const Term& term = statement.operands[at];
  if (opcode.vector) return element(type);
  // mov puts together and takes apart whatever its elements are.
  if (opcode.base != "mov" || term.kind != Term::Kind::kVector) return type;
  return {Takes::kBits, type.width / static_cast<unsigned>(term.terms.size())};
}

}  // namespace

void check_operand_types(const Statement& statement, const std::vector<Register>& registers) {
  const Opcode opcode(statement.opcode);
  for (std::size_t at = 0; at < statement.operands.size(); ++at) {
    const Term& term = statement.operands[at];
    const Type type = element_of(opcode, at, statement);
    if (term.kind == Term::Kind::kVector) check_vector(statement, registers, term, type, opcode.vector);
    else check(statement, registers, term, type);
  }
}

void resolve_literals(Statement& statement) {
  const Opcode opcode(statement.opcode);
  for (std::size_t at = 0; at < statement.operands.size(); ++at) {
    if (statement.operands[at].kind != Term::Kind::kVector) continue;
    const Type type = element_of(opcode, at, statement);
    for (Term& one : statement.operands[at].terms) {
      const bool rounded = one.kind == Term::Kind::kFloat64 && is_float(type) && type.width == 4;
      if (rounded || (one.kind != Term::Kind::kFloat32 && one.kind != Term::Kind::kFloat64)) continue;
      one.kind = Term::Kind::kInteger;
    }
  }
}

}  // namespace msa_ops::emulator::ptx

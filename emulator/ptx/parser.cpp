#include "parser.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "constant_expression.hpp"
#include "error.hpp"
#include "instruction.hpp"
#include "lexer.hpp"
#include "operand_types.hpp"
#include "selector.hpp"
#include "versions.hpp"

namespace msa_ops::emulator::ptx {
namespace {

unsigned width_of_type(std::string_view type, int line) {
  if (type == ".pred") return kPredicateWidth;
  static const std::unordered_map<std::string_view, unsigned> widths{
      {".b8", 1},    {".u8", 1},  {".s8", 1},  {".b16", 2}, {".u16", 2}, {".s16", 2}, {".f16", 2}, {".f16x2", 4},
      {".b32", 4},   {".u32", 4}, {".s32", 4}, {".f32", 4}, {".b64", 8}, {".u64", 8}, {".s64", 8}, {".f64", 8}, {".b128", 16}};
  const auto found = widths.find(type);
  if (found == widths.end()) throw Unsupported(std::string(type), line);
  return found->second;
}

constexpr std::uint64_t kMostVariableBytes = std::uint64_t{1} << 30;  // of all variables of a text
constexpr std::uint64_t kMostAlignment = 1 << 16;
constexpr std::uint64_t kMostParameterBytes = 32764;
constexpr std::size_t kMostRegisters = 1'000'000;  // more than any kernel has
constexpr std::size_t kMostNesting = 200;          // of blocks, and of operands

class Parser {
 public:
  explicit Parser(std::string_view source) : tokens_(tokenize(source)) {}

  Module parse() {
    head();
    while (peek().kind != Token::Kind::kEnd) top_level();
    return std::move(module_);
  }

 private:
  // ---- tokens
  const Token& peek(std::size_t ahead = 0) const {
    return tokens_[at_ + ahead < tokens_.size() ? at_ + ahead : tokens_.size() - 1];
  }
  const Token& next() {
    const Token& token = peek();
    if (token.kind != Token::Kind::kEnd) ++at_;
    return token;
  }
  bool accept(char mark) {
    if (!peek().is(mark)) return false;
    ++at_;
    return true;
  }
  [[noreturn]] void fail(const std::string& wanted) const {
    throw PtxError("expected " + wanted + ", found `" + std::string(peek().text) + "`", peek().line);
  }
  void expect(char mark) {
    if (!accept(mark)) fail(std::string("`") + mark + "`");
  }
  std::string word(const char* wanted) {
    if (peek().kind != Token::Kind::kWord) fail(wanted);
    return std::string(next().text);
  }
  void skip_line() {
    for (const int line = peek().line; peek().line == line && peek().kind != Token::Kind::kEnd;) ++at_;
  }
  Constant constant() { return ConstantExpression(tokens_, at_).whole(); }
  bool constant_begins() { return ConstantExpression(tokens_, at_).begins(); }
  std::uint64_t integer() {
    if (peek().kind != Token::Kind::kNumber) fail("an integer");
    return integer_of(ConstantExpression(tokens_, at_).product());
  }
  std::uint64_t integer_of(const Constant& value) const {
    if (!value.is_integer()) fail("an integer");
    return value.bits;
  }
  // + 4 - 8 * 2, as often as there are more
  std::uint64_t distance() {
    std::uint64_t sum = 0;
    while (peek().is('+') || peek().is('-')) {
      const bool negative = next().is('-');
      const std::uint64_t value = integer_of(ConstantExpression(tokens_, at_).product());
      sum += negative ? ~value + 1 : value;
    }
    return sum;
  }

  // Elements of `width` bytes in all, of a variable or a parameter.
  std::uint64_t bytes_of(unsigned width) {
    const int line = peek().line;
    const std::uint64_t count = integer_of(constant());
    if (count > kMostVariableBytes / width || (variable_bytes_ += count * width) > kMostVariableBytes) {
      throw PtxError("more than " + std::to_string(kMostVariableBytes) + " bytes of variables", line);
    }
    return count * width;
  }
  std::uint64_t alignment() {
    const int line = peek().line;
    const std::uint64_t value = integer();
    if (value == 0 || (value & (value - 1)) != 0 || value > kMostAlignment) {
      throw PtxError("an alignment of " + std::to_string(value) + "; accepted: powers of two up to " +
                         std::to_string(kMostAlignment), line);
    }
    return value;
  }

  // ---- the module
  void top_level() {
    const Token& token = peek();
    const std::string_view text = token.text;
    if (text == ".address_size") {
      next();
      if (integer() != 64) throw Unsupported(".address_size other than 64", token.line);
    } else if (text == ".file") {
      skip_line();
    } else if (text == ".section") {
      while (!peek().is('{') && peek().kind != Token::Kind::kEnd) next();
      while (!peek().is('}') && peek().kind != Token::Kind::kEnd) next();
      expect('}');
    } else if (text == ".extern" || text == ".visible" || text == ".weak" || text == ".common") {
      declared_only_ = text == ".extern";
      next();
      return;
    } else if (text == ".shared") {
      module_.shared.push_back(variable_of_the_module());
    } else if (text == ".entry") {
      entry();
    } else if (text == ".global" || text == ".const") {
      (text == ".global" ? module_.global : module_.constant).push_back(variable_of_the_module());
    } else if (text == ".func") {
      function();
    } else if (text == ".alias") {
      throw Unsupported(std::string(text), token.line);
    } else {
      fail("a directive");
    }
    declared_only_ = false;
  }

  // A variable of the module. One that other modules have may be declared several times, and then be defined.
  Variable variable_of_the_module() {
    const bool elsewhere = declared_only_;
    const int line = peek().line;
    Variable made = variable();
    const auto [known, is_new] = module_names_.emplace(made.name, elsewhere);
    if (!is_new && !known->second && !elsewhere) throw PtxError("`" + made.name + "` twice", line);
    known->second = known->second && elsewhere;
    return made;
  }

  // .version 9.0  .target sm_90a, debug   in this order before everything else. Whether a chip runs the target is for the
  // launch to say.
  void head() {
    if (peek().text != ".version") throw PtxError("the text does not begin with `.version`", peek().line);
    next();
    const Token version = next();
    check_version(version.text, version.line);
    if (peek().text != ".target") throw PtxError("no `.target` after `.version`", peek().line);
    const int line = next().line;
    module_.target = word("a target");
    check_target(module_.target, version.text, line);
    while (accept(',')) next();
  }

  // .shared .align 16 .b8 name[16];  without a number in the brackets it is the dynamic shared memory.
  Variable variable() {
    Variable made = declaration();
    if (accept('=')) initialize(made, element_);
    expect(';');
    return made;
  }

  // The same up to its end.
  Variable declaration() {
    next();
    Variable made{"", 0, 0};
    std::string type = word("a type");
    while (type == ".align" || type == ".ptr" || type == ".attribute") {
      if (type == ".attribute") throw Unsupported(type, peek().line);
      if (type == ".align") made.alignment = alignment();
      type = word("a type");
    }
    const unsigned width = element_ = width_of_type(type, peek().line);
    if (made.alignment == 0) made.alignment = width;
    made.name = word("a name");
    made.bytes = width;
    if (accept('[')) {
      made.bytes = peek().is(']') ? 0 : bytes_of(width);
      expect(']');
    }
    return made;
  }

  // = 3 or = {1, 2, 3}
  void initialize(Variable& variable, unsigned width) {
    const bool list = accept('{');
    do {
      if (list && peek().is('}')) break;
      if (!constant_begins()) throw Unsupported("an initial value that is no number", peek().line);
      const Term value = number();
      std::uint64_t bits = value.value;
      if (value.kind == Term::Kind::kFloat64 && width == 4) {
        double wide = 0;
        std::memcpy(&wide, &bits, sizeof(wide));
        const auto narrow = static_cast<float>(wide);
        std::uint32_t word = 0;
        std::memcpy(&word, &narrow, sizeof(word));
        bits = word;
      }
      for (unsigned i = 0; i < width; ++i) variable.values.push_back(static_cast<unsigned char>(bits >> (8 * i)));
    } while (list && accept(','));
    if (list) expect('}');
    if (variable.bytes == 0) variable.bytes = variable.values.size();
    if (variable.values.size() > variable.bytes) fail("no more initial values than the variable has elements");
  }

  void entry() {
    next();
    Entry made{};
    made.line = peek().line;
    made.name = word("the name of the kernel");
    for (const Entry& other : module_.entries) {
      if (other.name == made.name && !declared_only_) throw PtxError("kernel `" + made.name + "` twice", made.line);
    }
    body_ = &made;
    if (accept('(')) {
      while (!accept(')')) {
        parameter(made);
        if (!peek().is(')')) expect(',');
      }
    }
    while (!peek().is('{')) {
      const std::string directive = word("a directive or `{`");
      if (directive == ".reqntid" || directive == ".maxntid") {
        std::array<unsigned, 3> threads{1, 1, 1};
        unsigned i = 0;
        do {
          if (i == 3) fail("three numbers at most");
          threads[i++] = static_cast<unsigned>(integer());
        } while (accept(','));
        if (directive == ".reqntid") made.required_threads = threads;
        else made.max_threads = threads[0] * threads[1] * threads[2];
      } else if (directive == ".reqnctapercluster") {
        made.required_cluster = {1, 1, 1};
        unsigned i = 0;
        do {
          if (i == 3) fail("three numbers at most");
          made.required_cluster[i++] = static_cast<unsigned>(integer());
        } while (accept(','));
      } else if (directive == ".explicitcluster") {
        made.explicit_cluster = true;
      } else if (directive == ".minnctapersm") {
        made.blocks_a_multiprocessor = static_cast<unsigned>(integer());
      } else if (directive == ".maxnreg") {
        const int line = peek().line;
        made.max_registers = static_cast<unsigned>(integer());
        if (made.max_registers == 0) throw PtxError(".maxnreg 0; accepted: numbers from 1", line);
      } else if (directive == ".maxclusterrank") {
        made.most_cluster_blocks = static_cast<unsigned>(integer());
      } else if (directive == ".pragma") {
        next();
        expect(';');
      } else {
        throw Unsupported(directive, peek().line);
      }
    }
    block(-1);
    body_ = nullptr;
    module_.entries.push_back(std::move(made));
  }

  // .func (results) name (arguments) directives { body }    or without a body, a declaration
  void function() {
    next();
    Function made{};
    made.line = peek().line;
    body_ = &made;
    open_scope();
    if (peek().is('(')) made.results = formals();
    made.name = word("the name of the function");
    if (peek().is('(')) made.arguments = formals();
    while (!peek().is('{') && !peek().is(';')) {
      const std::string directive = word("a directive, `{` or `;`");
      if (directive != ".noreturn" && directive != ".pragma") throw Unsupported(directive, peek().line);
      if (directive == ".pragma") {
        next();
        expect(';');
      }
    }
    made.is_defined = !accept(';');
    if (made.is_defined) block(-1);
    close_scope();
    body_ = nullptr;
    Function& known = module_.functions[made.name];
    if (known.is_defined && made.is_defined) throw PtxError("function `" + made.name + "` twice", made.line);
    if (!known.is_defined) known = std::move(made);
  }

  // (.param .b64 a, .param .align 8 .b8 b[16])    or    (.reg .b32 a)
  std::vector<Formal> formals() {
    expect('(');
    std::vector<Formal> made;
    while (!accept(')')) {
      const int line = peek().line;
      Formal formal;
      if (peek().text == ".param") {
        const Variable variable = parameter_variable();
        formal.name = variable.name;
        formal.bytes = variable.bytes;
      } else if (word("`.param` or `.reg`") == ".reg") {
        formal.in_register = true;
        const std::string type = word("a type");
        const unsigned width = width_of_type(type, line);
        declared_ = register_type(type);
        formal.index = static_cast<std::uint32_t>(body_->registers.size());
        formal.name = word("a name");
        formal.bytes = width;
        declare(formal.name, width, line);
      } else {
        fail("`.param` or `.reg`");
      }
      made.push_back(formal);
      if (!peek().is(')')) expect(',');
    }
    return made;
  }

  // .param .align 8 .b8 name[16]: a variable of the body, under a name of its own, since scopes beside each other have
  // parameters of the same names.
  Variable parameter_variable() {
    Variable made = declaration();
    const std::string own = made.name + " " + std::to_string(body_->local.size());
    if (!variables_.back().emplace(made.name, own).second) throw PtxError("`" + made.name + "` twice", peek().line);
    made.name = own;
    body_->local.push_back(made);
    return made;
  }

  // .param .u64 .ptr .global .align 16 name    or    .param .align 8 .b8 name[24]
  void parameter(Entry& entry) {
    if (word("`.param`") != ".param") fail("`.param`");
    std::uint64_t alignment = 0;
    unsigned width = 0;
    std::string type;
    while (peek().kind == Token::Kind::kWord && peek().text[0] == '.') {
      const int line = peek().line;
      const std::string part = word("a type");
      if (part == ".align") {
        const std::uint64_t value = this->alignment();
        if (width == 0) alignment = value;  // after a type it speaks of what the pointer points to
      } else if (part == ".ptr" || part == ".global" || part == ".shared" || part == ".const" || part == ".local") {
        continue;
      } else {
        width = width_of_type(part, line);
        type = part;
      }
    }
    if (width == 0) fail("a type");
    Parameter made{word("the name of a parameter"), width, 0, type};
    for (const Parameter& other : entry.parameters) {
      if (other.name == made.name) throw PtxError("parameter `" + made.name + "` twice", peek().line);
    }
    if (alignment == 0) alignment = width;
    if (accept('[')) {
      made.bytes = bytes_of(width);
      made.type.clear();
      expect(']');
    }
    if (!entry.parameters.empty()) made.offset = entry.parameters.back().offset + entry.parameters.back().bytes;
    made.offset = (made.offset + alignment - 1) / alignment * alignment;
    if (made.offset + made.bytes > kMostParameterBytes) {
      throw PtxError("more than " + std::to_string(kMostParameterBytes) + " bytes of parameters", peek().line);
    }
    entry.parameters.push_back(std::move(made));
  }

  // ---- bodies
  void block(int parent) {
    expect('{');
    if (names_.size() > kMostNesting) throw PtxError("blocks nested too deeply", peek().line);
    const unsigned scope = static_cast<unsigned>(body_->scopes.size());
    body_->scopes.push_back({parent, {}, {}});
    open_scope();
    while (!accept('}')) {
      if (peek().kind == Token::Kind::kEnd) fail("`}`");
      statement(scope);
    }
    close_scope();
  }

  void open_scope() {
    names_.emplace_back();
    vectors_.emplace_back();
    variables_.emplace_back();
    own_variables_.emplace_back();
  }
  void close_scope() {
    names_.pop_back();
    vectors_.pop_back();
    variables_.pop_back();
    own_variables_.pop_back();
  }

  void statement(unsigned scope) {
    if (peek().is('{')) return block(static_cast<int>(scope));
    if (accept(';')) return;
    if (peek().kind == Token::Kind::kWord && peek(1).is(':')) {
      const int line = peek().line;
      const std::string label = word("a label");
      expect(':');
      if (peek().text == ".branchtargets") {
        next();
        std::vector<Term>& targets = body_->scopes[scope].tables[label];
        do targets.push_back(term());
        while (accept(','));
        return expect(';');
      }
      if (!body_->scopes[scope].labels.emplace(label, body_->statements.size()).second) {
        throw PtxError("label `" + label + "` twice", line);
      }
      return;
    }
    const std::string_view text = peek().text;
    if (text == ".reg") return registers();
    if (text == ".shared") return body_->shared.push_back(variable_of_a_body());
    if (text == ".local") return body_->local.push_back(variable_of_a_body());
    if (text == ".param") {
      parameter_variable();
      return expect(';');
    }
    if (text == ".callprototype" || text == ".calltargets") {  // what is called tells itself what it takes
      while (!peek().is(';') && peek().kind != Token::Kind::kEnd) next();
      return expect(';');
    }
    if (text == ".loc") return skip_line();
    if (text == ".pragma") {
      next(), next();
      return expect(';');
    }
    if (text.substr(0, 1) == ".") throw Unsupported(std::string(text), peek().line);
    instruction(scope);
  }

  Variable variable_of_a_body() {
    const int line = peek().line;
    Variable made = variable();
    if (names_.back().count(made.name) != 0 || !own_variables_.back().insert(made.name).second) {
      throw PtxError("`" + made.name + "` twice", line);
    }
    return made;
  }

  // .reg .b32 %r<10>, other;    or    .reg .v4 .b32 four;  which is four.x to four.w, or four.r to four.a
  void registers() {
    next();
    const int line = peek().line;
    std::string type = word("a type");
    const unsigned count = type == ".v2" ? 2 : type == ".v4" ? 4 : 1;
    if (count > 1) type = word("a type");
    const unsigned width = width_of_type(type, line);
    declared_ = register_type(type);
    if (count * width > 16 || (count > 1 && width == kPredicateWidth)) fail("a vector of 16 bytes at most");
    do {
      const std::string name = word("the name of a register");
      if (count > 1) {
        declare_vector(name, count, width, line);
      } else if (accept('<')) {
        const std::uint64_t count = integer();
        expect('>');
        if (count > kMostRegisters) throw PtxError("more registers than any kernel has", line);
        for (std::uint64_t i = 0; i < count; ++i) declare(name + std::to_string(i), width, line);
      } else {
        declare(name, width, line);
      }
    } while (accept(','));
    expect(';');
  }

  void declare_vector(const std::string& name, unsigned count, unsigned width, int line) {
    const auto first = static_cast<std::uint32_t>(body_->registers.size());
    if (names_.back().count(name) != 0 || !vectors_.back().emplace(name, std::make_pair(first, count)).second) {
      throw PtxError("register `" + name + "` twice", line);
    }
    for (unsigned i = 0; i < count; ++i) {
      declare(name + "." + "xyzw"[i], width, line);
      names_.back().emplace(name + "." + "rgba"[i], first + i);
    }
  }

  void declare(const std::string& name, unsigned width, int line) {
    if (own_variables_.back().count(name) != 0 ||
        !names_.back().emplace(name, static_cast<std::uint32_t>(body_->registers.size())).second) {
      throw PtxError("register `" + name + "` twice", line);
    }
    if (body_->registers.size() == kMostRegisters) throw PtxError("more registers than any kernel has", line);
    body_->registers.push_back({name, width, declared_});
  }

  void instruction(unsigned scope) {
    Statement made{};
    made.scope = scope;
    const char* const begin = peek().text.data();
    if (accept('@')) {
      made.guarded = true;
      made.guard_negated = accept('!');
      const Term guard = term();
      if (guard.kind != Term::Kind::kRegister) fail("a predicate register after `@`");
      made.guard = guard.index;
    }
    made.line = peek().line;
    made.opcode = word("an instruction");
    while (!peek().is(';')) {
      made.operands.push_back(peek().is('(') && made.opcode.compare(0, 4, "call") == 0 ? list() : term());
      if (!peek().is(';')) expect(',');
    }
    made.written = {begin, static_cast<std::size_t>(peek().text.data() - begin)};
    expect(';');
    body_->statements.push_back(std::move(made));
  }

  // (a, b) of a call
  Term list() {
    Term made;
    made.kind = Term::Kind::kList;
    expect('(');
    while (!accept(')')) {
      made.terms.push_back(term());
      if (!peek().is(')')) expect(',');
    }
    return made;
  }

  Term term() {
    Term made = simple_term();
    if (accept('|')) made.second.push_back(simple_term());
    return made;
  }

  Term simple_term() {
    if (++nesting_ > kMostNesting) throw PtxError("operands nested too deeply", peek().line);
    Term made = unlimited_term();
    --nesting_;
    return made;
  }

  Term unlimited_term() {
    if (accept('{')) {
      Term vector;
      vector.kind = Term::Kind::kVector;
      do vector.terms.push_back(simple_term());
      while (accept(','));
      expect('}');
      return vector;
    }
    if (accept('[')) {
      Term address;
      address.kind = Term::Kind::kAddress;
      if (peek().kind == Token::Kind::kWord) {
        address.terms.push_back(simple_term());
        address.value = std::exchange(address.terms[0].value, 0);  // of a name with a distance
      }
      if (accept(',')) {  // [map, {coordinates}]
        address.terms.push_back(simple_term());
        expect(']');
        return address;
      }
      if (address.terms.empty()) address.value = integer_of(constant());
      address.value += distance();
      expect(']');
      return address;
    }
    if (constant_begins()) return number();
    if (accept('!')) {
      Term made = simple_term();
      made.negated = !made.negated;
      return made;
    }
    const bool negative = accept('-');
    Term made = name();
    if (negative && made.kind != Term::Kind::kRegister) fail("a number");
    if (negative) made.selector |= Selector::negative_bit();
    if (made.kind == Term::Kind::kName) made.value = distance();  // variable + 4
    return made;
  }

  // A register, one with a selector of its parts, or another name.
  Term name() {
    Term made;
    made.name = word("an operand");
    if (find_register(made) || find_parameter(made)) return made;
    const std::size_t dot = made.name.rfind('.');
    if (dot == std::string::npos) return made;
    const auto selector = selector_of(std::string_view(made.name).substr(dot + 1));
    if (!selector) return made;
    Term whole;
    whole.name = made.name.substr(0, dot);
    if (!find_register(whole) || whole.kind != Term::Kind::kRegister) return made;
    whole.selector = selector->packed();
    return whole;
  }

  bool find_register(Term& made) const {
    for (std::size_t scope = names_.size(); scope-- > 0;) {
      if (const auto vector = vectors_[scope].find(made.name); vector != vectors_[scope].end()) {
        made.kind = Term::Kind::kVector;
        for (unsigned i = 0; i < vector->second.second; ++i) {
          Term element;
          element.kind = Term::Kind::kRegister;
          element.index = vector->second.first + i;
          made.terms.push_back(element);
        }
        break;
      }
      const auto found = names_[scope].find(made.name);
      if (found == names_[scope].end()) continue;
      made.kind = Term::Kind::kRegister;
      made.index = found->second;
      break;
    }
    return made.kind != Term::Kind::kName;
  }

  // Of a call or a function.
  bool find_parameter(Term& made) const {
    for (std::size_t scope = variables_.size(); scope-- > 0;) {
      const auto found = variables_[scope].find(made.name);
      if (found == variables_[scope].end()) continue;
      made.name = found->second;
      return true;
    }
    return false;
  }

  Term number() {
    const Constant value = constant();
    Term made;
    made.value = value.bits;
    made.kind = value.is_integer()                        ? Term::Kind::kInteger
                : value.kind == Constant::Kind::kSingle ? Term::Kind::kFloat32
                                                        : Term::Kind::kFloat64;
    return made;
  }

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  std::uint64_t variable_bytes_ = 0;
  std::size_t nesting_ = 0;
  Module module_;
  Body* body_ = nullptr;
  RegisterType declared_ = RegisterType::kBits;  // of the registers that are being declared
  bool declared_only_ = false;  // after `.extern`
  std::unordered_map<std::string, bool> module_names_;  // variables, and whether they were only declared
  unsigned element_ = 0;  // bytes of the type that the last declaration named
  std::vector<std::unordered_map<std::string, std::uint32_t>> names_;  // registers of the scopes around
  std::vector<std::unordered_map<std::string, std::pair<std::uint32_t, unsigned>>> vectors_;  // first of how many
  std::vector<std::unordered_map<std::string, std::string>> variables_;  // parameters of calls and functions
  std::vector<std::unordered_set<std::string>> own_variables_;  // of shared and local memory, of the scopes around
};

}  // namespace

Module parse(std::string_view source) { return Parser(source).parse(); }

}  // namespace msa_ops::emulator::ptx

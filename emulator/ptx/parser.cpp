#include "parser.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <set>
#include <utility>

#include "error.hpp"
#include "instruction.hpp"
#include "module_names.hpp"
#include "operand_types.hpp"
#include "scopes.hpp"
#include "selector.hpp"
#include "token_reader.hpp"
#include "variable_reader.hpp"
#include "versions.hpp"

namespace msa_ops::emulator::ptx {
namespace {

constexpr std::uint64_t kMostParameterBytes = 32764, kMostConstantBytes = 65536;
constexpr std::size_t kMostRegisters = 1'000'000;  // more than any kernel has
constexpr std::size_t kMostNesting = 200;          // of blocks, and of operands

class Parser : TokenReader {
 public:
  explicit Parser(std::string_view source) : TokenReader(source) {}

  Module parse() {
    head();
    while (!is_at_end()) top_level();
    module_names_.check_externals(peek().line);
    return std::move(module_);
  }

 private:
  // ---- the module
  void top_level() {
    const Token& token = peek();
    const std::string_view text = token.text;
    if (text == ".address_size") {
      next();
      if (integer() != 64) throw Unsupported(".address_size other than 64", token.line);
    } else if (text == ".file") {
      file();
    } else if (text == ".section") {
      while (!peek().is('{') && !is_at_end()) next();
      while (!peek().is('}') && !is_at_end()) next();
      expect('}');
    } else if (text == ".pragma") {
      pragma();
    } else if (text == ".extern" || text == ".visible" || text == ".weak" || text == ".common") {
      linking_ = text;
      next();
      if (text == ".common" && peek().text != ".global") fail("`.global` after `.common`");
      const bool may_follow = peek().text == ".global" || peek().text == ".const" || peek().text == ".shared" ||
                              peek().text == ".entry" || peek().text == ".func";
      if (!may_follow) fail("a variable, a kernel or a function");
      return;
    } else if (text == ".global" || text == ".const" || text == ".shared") {
      variables_of_the_module();
    } else if (text == ".entry") {
      entry();
    } else if (text == ".func") {
      function();
    } else if (text == ".alias") {
      throw Unsupported(std::string(text), token.line);
    } else {
      fail("a directive");
    }
    linking_ = {};
  }

  bool is_external() const { return linking_ == ".extern"; }

  // What these two say, SourceLines reads: .file 1 "name", time, size    and
  // .loc 1 line column, function_name label + offset, inlined_at 1 line column
  void file() {
    next();
    integer();
    if (peek().kind != Token::Kind::kString) fail("a string");
    next();
    if (!accept(',')) return;
    integer();
    expect(',');
    integer();
  }
  void source_line() {
    next();
    for (int i = 0; i < 3; ++i) integer();
    while (accept(',')) {
      const std::string what = word("`function_name` or `inlined_at`");
      if (what == "function_name") {
        word("a label");
        if (accept('+')) integer();
      } else if (what == "inlined_at") {
        for (int i = 0; i < 3; ++i) integer();
      } else {
        fail("`function_name` or `inlined_at`");
      }
    }
  }

  // .pragma "nounroll"; says nothing to the emulator
  void pragma() {
    next();
    strings();
  }
  void strings() {
    do {
      if (peek().kind != Token::Kind::kString) fail("a string");
      next();
    } while (accept(','));
    expect(';');
  }

  void variables_of_the_module() {
    const std::string space(peek().text);
    const int line = peek().line;
    for (Variable& made : variable_reader_.list(is_external())) {
      check_addresses(made);
      const bool is_new = module_names_.declare(made, space, linking_, line);
      if (space != ".shared") {
        if (!is_external()) add_static(space, std::move(made), line);
      } else if (is_new) {
        module_.shared.push_back(std::move(made));
      } else if (!is_external()) {
        for (Variable& before : module_.shared) {
          if (before.name == made.name) before = made;
        }
      }
    }
  }

  void add_static(const std::string& space, Variable&& made, int line) {
    (space == ".global" ? module_.global : module_.constant).push_back(std::move(made));
    if (space == ".global") return;
    const Variable& last = module_.constant.back();
    constant_bytes_ = (constant_bytes_ + last.alignment - 1) / last.alignment * last.alignment + last.bytes;
    if (constant_bytes_ > kMostConstantBytes) throw PtxError("more than 65536 bytes of constant variables", line);
  }

  // What addresses as initial values speak of stands before them, or is the variable itself, which has no other name yet.
  void check_addresses(Variable& variable) {
    for (AddressValue& one : variable.addresses) {
      Term term;
      term.name = one.name;
      if (scopes_.find_renamed(term) && static_names_.count(term.name) != 0) {
        one.name = term.name;
        continue;
      }
      const auto function = module_.functions.find(one.name);
      const bool is_function = one.may_be_function && function != module_.functions.end() && function->second.is_defined;
      if (one.name == variable.name || module_names_.is_static(one.name) || is_function) continue;
      throw PtxError("the address of `" + one.name + "` as an initial value; accepted: variables of .global and .const "
                     "and functions that stand before", one.line);
    }
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

  void entry() {
    next();
    Entry made{};
    made.line = peek().line;
    made.name = word("the name of the kernel");
    module_names_.claim(made.name, ".entry", made.line);
    for (const Entry& other : module_.entries) {
      if (other.name == made.name && !is_external()) throw PtxError("kernel `" + made.name + "` twice", made.line);
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
        strings();
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
    scopes_.open();
    if (peek().is('(')) made.results = formals();
    made.name = word("the name of the function");
    module_names_.claim(made.name, ".func", made.line);
    if (peek().is('(')) made.arguments = formals();
    while (!peek().is('{') && !peek().is(';')) {
      const std::string directive = word("a directive, `{` or `;`");
      if (directive != ".noreturn" && directive != ".pragma") throw Unsupported(directive, peek().line);
      if (directive == ".pragma") strings();
    }
    made.is_defined = !accept(';');
    if (made.is_defined) block(-1);
    scopes_.close();
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
    Variable made = variable_reader_.parameter();
    add_parameter(made);
    return made;
  }

  void add_parameter(Variable& made) {
    const std::string own = made.name + " " + std::to_string(body_->local.size());
    scopes_.rename(made.name, own, peek().line);
    made.name = own;
    body_->local.push_back(made);
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
    if (peek().is('[')) {
      made.bytes = variable_reader_.array(width);
      made.type.clear();
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
    if (scopes_.depth() > kMostNesting) throw PtxError("blocks nested too deeply", peek().line);
    const unsigned scope = static_cast<unsigned>(body_->scopes.size());
    body_->scopes.push_back({parent, {}, {}});
    scopes_.open();
    while (!accept('}')) {
      if (is_at_end()) fail("`}`");
      statement(scope);
    }
    scopes_.close();
  }

  void statement(unsigned scope) {
    if (peek().is('{')) return block(static_cast<int>(scope));
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
    if (text == ".shared" || text == ".local" || text == ".global" || text == ".const") return variables_of_a_body();
    if (text == ".param") {
      for (Variable& made : variable_reader_.list(false)) add_parameter(made);
      return;
    }
    if (text == ".callprototype" || text == ".calltargets") {  // what is called tells itself what it takes
      while (!peek().is(';') && !is_at_end()) next();
      return expect(';');
    }
    if (text == ".loc") return source_line();
    if (text == ".pragma") return pragma();
    if (text.substr(0, 1) == ".") throw Unsupported(std::string(text), peek().line);
    instruction(scope);
  }

  void variables_of_a_body() {
    const std::string space(peek().text);
    const int line = peek().line;
    for (Variable& made : variable_reader_.list(false)) {
      scopes_.declare_variable(made.name, line);
      if (space == ".shared") {
        body_->shared.push_back(std::move(made));
      } else if (space == ".local") {
        body_->local.push_back(std::move(made));
      } else {  // of the module, under a name of its own
        std::string own = made.name + " of " + body_->name + ", line " + std::to_string(line);
        while (!static_names_.insert(own).second) own += "'";
        scopes_.rename(made.name, own, line);
        made.name = own;
        check_addresses(made);
        add_static(space, std::move(made), line);
      }
    }
  }

  // .reg .b32 %r<10>, other;    or    .reg .v4 .b32 four;  which is four.x to four.w, or four.r to four.a
  void registers() {
    next();
    const int line = peek().line;
    std::string type = word("a type");
    if (type == ".align") alignment(), type = word("a type");  // says nothing of a register
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
    scopes_.declare_vector(name, first, count, line);
    for (unsigned i = 0; i < count; ++i) declare(name + "." + "xyzw"[i], width, line);
  }

  void declare(const std::string& name, unsigned width, int line) {
    if (body_->registers.size() == kMostRegisters) throw PtxError("more registers than any kernel has", line);
    scopes_.declare(name, static_cast<std::uint32_t>(body_->registers.size()), line);
    body_->registers.push_back({name, width, declared_});
  }

  void instruction(unsigned scope) {
    Statement made{};
    made.scope = scope;
    const char* const begin = peek().text.data();
    if (accept('@')) {
      made.guarded = true;
      made.guard_negated = accept('!');
      if (peek().is('!')) fail("a predicate register after `@!`");
      const Term guard = term();
      if (guard.kind != Term::Kind::kRegister) fail("a predicate register after `@`");
      made.guard = guard.index;
    }
    made.line = peek().line;
    made.opcode = word("an instruction");
    while (!peek().is(';')) {
      made.operands.push_back(peek().is('(') && made.opcode.compare(0, 4, "call") == 0 ? list() : term());
      if (peek().is(';')) break;
      expect(',');
      if (peek().is(';')) fail("an operand after `,`");
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
    if (made.kind != Term::Kind::kName) return made;
    if (!peek().is('[')) {
      made.value = distance();  // variable + 4
    } else if (nesting_ == 1) {  // variable[4], an operand of its own
      next();
      if (!constant_begins()) fail("a number of an element");
      made.value = integer_of(constant());
      made.is_subscript = true;
      expect(']');
    }
    return made;
  }

  // A register, one with a selector of its parts, or another name.
  Term name() {
    Term made;
    made.name = word("an operand");
    if (scopes_.find_register(made) || scopes_.find_renamed(made)) return made;
    const std::size_t dot = made.name.rfind('.');
    if (dot == std::string::npos) return made;
    const auto selector = selector_of(std::string_view(made.name).substr(dot + 1));
    if (!selector) return made;
    Term whole;
    whole.name = made.name.substr(0, dot);
    if (!scopes_.find_register(whole) || whole.kind != Term::Kind::kRegister) return made;
    whole.selector = selector->packed();
    return whole;
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

  VariableReader variable_reader_{*this};
  std::uint64_t constant_bytes_ = 0;
  std::size_t nesting_ = 0;
  Module module_;
  Body* body_ = nullptr;
  RegisterType declared_ = RegisterType::kBits;  // of the registers that are being declared
  std::string_view linking_;  // before what comes: .extern, .visible, .weak, .common, or nothing
  ModuleNames module_names_;
  std::set<std::string> static_names_;  // global and constant variables of bodies
  Scopes scopes_;
};

}  // namespace

Module parse(std::string_view source) { return Parser(source).parse(); }

}  // namespace msa_ops::emulator::ptx

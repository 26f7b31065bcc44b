#include "parser.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "error.hpp"
#include "instruction.hpp"
#include "operand_types.hpp"
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
    check_externals();
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
      skip_line();
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

  // .pragma "nounroll"; says nothing to the emulator
  void pragma() {
    next();
    do {
      if (peek().kind != Token::Kind::kString) fail("a string");
      next();
    } while (accept(','));
    expect(';');
  }

  // One that other modules have may be declared several times, and then be defined.
  void variables_of_the_module() {
    const std::string space(peek().text);
    const int line = peek().line;
    for (Variable& made : variable_reader_.list(is_external())) {
      check_addresses(made, space, &made.name);
      const auto [known, is_new] = module_names_.emplace(made.name, Known{space, made.bytes, made.alignment, is_external()});
      if (!is_new) declare_again(known->second, made, space, line);
      if (space == ".shared") {
        if (is_new) module_.shared.push_back(std::move(made));
      } else if (!is_external()) {
        add_static(space, std::move(made), line);
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

  struct Known {  // a name of the module
    std::string space;  // ".entry", ".func"
    std::uint64_t bytes = 0, alignment = 0;
    bool is_external = false;  // so far
  };
  void declare_again(Known& known, const Variable& made, const std::string& space, int line) {
    if (!known.is_external && !is_external()) throw PtxError("`" + made.name + "` twice", line);
    const bool is_alike = known.space == space && known.alignment == made.alignment &&
                          (known.bytes == made.bytes || known.bytes == 0 || made.bytes == 0);
    if (!is_alike) throw PtxError("`" + made.name + "` is declared in another way before", line);
    if (known.is_external && !is_external() && linking_.empty()) {
      throw PtxError("`" + made.name + "` is external; accepted: a definition that is .visible, .weak or .common", line);
    }
    known.is_external = known.is_external && is_external();
    if (known.bytes == 0) known.bytes = made.bytes;
  }
  // A kernel or a function; PTX lets none of them have the name of a variable.
  void claim(const std::string& name, const char* kind, int line) {
    const auto [known, is_new] = module_names_.emplace(name, Known{kind});
    if (!is_new && known->second.space != kind) throw PtxError("`" + name + "` is a variable, too", line);
  }
  void check_externals() const {
    for (const auto& [name, known] : module_names_) {
      const bool is_static = known.space == ".global" || known.space == ".const";
      if (is_static && known.is_external) throw PtxError("`" + name + "` is external, and nothing defines it", peek().line);
    }
  }

  // What addresses as initial values speak of stands before them, or is the variable itself.
  void check_addresses(Variable& variable, const std::string& space, const std::string* own) {
    for (AddressValue& one : variable.addresses) {
      Term term;
      term.name = one.name;
      if (body_ != nullptr && find_parameter(term) && static_names_.count(term.name) != 0) {
        one.name = term.name;
        continue;
      }
      if (own != nullptr && one.name == *own && space != ".shared") continue;
      const auto known = module_names_.find(one.name);
      const bool is_variable = known != module_names_.end() && (known->second.space == ".global" || known->second.space == ".const");
      const auto function = module_.functions.find(one.name);
      const bool is_function = one.may_be_function && function != module_.functions.end() && function->second.is_defined;
      if (is_variable || is_function) continue;
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
    claim(made.name, ".entry", made.line);
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
    claim(made.name, ".func", made.line);
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
    Variable made = variable_reader_.parameter();
    add_parameter(made);
    return made;
  }

  void add_parameter(Variable& made) {
    const std::string own = made.name + " " + std::to_string(body_->local.size());
    if (!variables_.back().emplace(made.name, own).second) throw PtxError("`" + made.name + "` twice", peek().line);
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
    if (names_.size() > kMostNesting) throw PtxError("blocks nested too deeply", peek().line);
    const unsigned scope = static_cast<unsigned>(body_->scopes.size());
    body_->scopes.push_back({parent, {}, {}});
    open_scope();
    while (!accept('}')) {
      if (is_at_end()) fail("`}`");
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
    if (text == ".shared" || text == ".local" || text == ".global" || text == ".const") return variables_of_a_body();
    if (text == ".param") {
      for (Variable& made : variable_reader_.list(false)) add_parameter(made);
      return;
    }
    if (text == ".callprototype" || text == ".calltargets") {  // what is called tells itself what it takes
      while (!peek().is(';') && !is_at_end()) next();
      return expect(';');
    }
    if (text == ".loc") return skip_line();
    if (text == ".pragma") return pragma();
    if (text.substr(0, 1) == ".") throw Unsupported(std::string(text), peek().line);
    instruction(scope);
  }

  void variables_of_a_body() {
    const std::string space(peek().text);
    const int line = peek().line;
    for (Variable& made : variable_reader_.list(false)) {
      if (names_.back().count(made.name) != 0 || variables_.back().count(made.name) != 0 ||
          !own_variables_.back().insert(made.name).second) {
        throw PtxError("`" + made.name + "` twice", line);
      }
      if (space == ".shared") {
        body_->shared.push_back(std::move(made));
      } else if (space == ".local") {
        body_->local.push_back(std::move(made));
      } else {  // of the module, under a name of its own
        std::string own = made.name + " of " + body_->name + ", line " + std::to_string(line);
        while (!static_names_.insert(own).second) own += "'";
        check_addresses(made, space, &made.name);
        for (AddressValue& one : made.addresses) {
          if (one.name == made.name) one.name = own;
        }
        variables_.back().emplace(std::exchange(made.name, own), own);
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

  VariableReader variable_reader_{*this};
  std::uint64_t constant_bytes_ = 0;
  std::size_t nesting_ = 0;
  Module module_;
  Body* body_ = nullptr;
  RegisterType declared_ = RegisterType::kBits;  // of the registers that are being declared
  std::string_view linking_;  // before what comes: .extern, .visible, .weak, .common, or nothing
  std::map<std::string, Known> module_names_;
  std::set<std::string> static_names_;  // global and constant variables of bodies
  std::vector<std::unordered_map<std::string, std::uint32_t>> names_;  // registers of the scopes around
  std::vector<std::unordered_map<std::string, std::pair<std::uint32_t, unsigned>>> vectors_;  // first of how many
  std::vector<std::unordered_map<std::string, std::string>> variables_;  // parameters of calls and functions
  std::vector<std::unordered_set<std::string>> own_variables_;  // of shared and local memory, of the scopes around
};

}  // namespace

Module parse(std::string_view source) { return Parser(source).parse(); }

}  // namespace msa_ops::emulator::ptx

#include "kernel.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "constant_operands.hpp"
#include "control_flow.hpp"
#include "error.hpp"
#include "features.hpp"
#include "ignored_waits.hpp"
#include "memory_order.hpp"
#include "opcodes.hpp"
#include "operand_types.hpp"
#include "parser.hpp"
#include "selector.hpp"
#include "quiet.hpp"
#include "special.hpp"
#include "vocabulary.hpp"
#include "warp.hpp"

namespace msa_ops::emulator::ptx {

namespace {

constexpr std::size_t kMostLocalBytes = 512 * 1024;  // of a thread, as on every chip
constexpr std::size_t kMostFunctions = 1000;

void with_clock(PtxWarp& warp, const Instruction& instruction, Mask lanes) {
  warp.refresh_clock();
  instruction.form->handler(warp, instruction, lanes);
}

}  // namespace

// From the statements of an entry to instructions.
class Preparation {
 public:
  Preparation(Kernel& kernel, const Module& module, const Entry& entry)
      : kernel_(kernel), module_(module), entry_(entry) {
    collect(entry, nullptr);
    lay_out_bodies();
    lay_out_shared(module);
    lay_out_variables(module);
    for (part_ = 0; part_ < parts_.size(); ++part_) {
      for (const Statement& statement : part().body->statements) add(statement);
      if (parts_.size() > 1) add_return();
      find_reconvergence(kernel.instructions_, part().first, part().end);
      find_ignored_waits(kernel.instructions_, part().first, part().end, part_ > 0);
    }
    kernel.end_ = parts_[0].end;
  }

 private:
  // The kernel itself, or a function that it may call.
  struct Part {
    const Body* body;
    const Function* function;
    std::uint32_t first_register, end_register;
    std::uint32_t first, end;             // instructions
    std::uint64_t first_local, end_local;
    std::map<std::string, std::uint64_t> local;  // addresses
    bool open = true;                     // while its calls are being followed
  };
  const Part& part() const { return parts_[part_]; }

  // Parts in the order in which calls lead to them. A function that is named other than by a call may be called by any
  // pointer.
  void collect(const Body& body, const Function* function) {
    const std::size_t own = parts_.size();
    parts_.push_back({&body, function, 0, 0, 0, 0, 0, 0, {}, true});
    for (const Statement& statement : body.statements) {
      std::set<std::string> names;
      for (const Term& term : statement.operands) note_names(term, names);
      std::set<std::string> held;  // by variables that the statement names
      for (const std::string& name : names) note_addresses(name, held);
      names.insert(held.begin(), held.end());
      for (const std::string& name : names) {
        const auto found = module_.functions.find(name);
        if (found == module_.functions.end()) continue;
        if (statement.opcode.compare(0, 4, "call") != 0 || held.count(name) != 0) pointed_at_.insert(name);
        const auto known = numbers_.find(name);
        if (known != numbers_.end() && parts_[known->second].open) {
          throw Unsupported("a call of `" + name + "` within itself", statement.line);
        }
        if (known != numbers_.end()) continue;
        if (!found->second.is_defined && !knows_external(name)) {
          throw Unsupported("function `" + name + "`, of which there is no text", statement.line);
        }
        if (parts_.size() > kMostFunctions) throw PtxError("more functions than any kernel calls", statement.line);
        numbers_[name] = parts_.size();
        collect(found->second, &found->second);
      }
    }
    parts_[own].open = false;
  }

  void lay_out_bodies() {
    std::uint32_t at = 0;
    for (Part& one : parts_) {
      one.first = at;
      at += static_cast<std::uint32_t>(one.body->statements.size()) + (parts_.size() > 1 ? 1 : 0);
      one.end = at;
      one.first_register = static_cast<std::uint32_t>(kernel_.registers_.size());
      for (const Register& reg : one.body->registers) {
        places_.push_back(static_cast<std::uint32_t>(kernel_.register_bytes_));
        kernel_.register_bytes_ += reg.width == kPredicateWidth ? 16 : reg.width * kLanes;
        kernel_.registers_.push_back(reg);
      }
      one.end_register = static_cast<std::uint32_t>(kernel_.registers_.size());
      one.first_local = kernel_.local_bytes_;
      for (const Variable& variable : one.body->local) {
        kernel_.local_bytes_ = round_up(kernel_.local_bytes_, variable.alignment);
        one.local[variable.name] = kernel_.local_bytes_;
        kernel_.local_bytes_ += variable.bytes;
        if (kernel_.local_bytes_ > kMostLocalBytes) {
          throw PtxError("more than " + std::to_string(kMostLocalBytes) + " bytes of local memory a thread", one.body->line);
        }
      }
      one.end_local = kernel_.local_bytes_;
    }
    kernel_.instructions_.reserve(at);
  }

  // Static variables first, then the dynamic ones, which all start at the same place.
  void lay_out_shared(const Module& module) {
    std::vector<Variable> variables = module.shared;
    std::set<std::string> used;
    for (const Part& one : parts_) {
      variables.insert(variables.end(), one.body->shared.begin(), one.body->shared.end());
      for (const Statement& statement : one.body->statements) {
        for (const Term& term : statement.operands) note_names(term, used);
      }
    }
    std::uint64_t end = kernel_.shared_base();
    for (const bool dynamic : {false, true}) {
      std::uint64_t alignment = 1;
      for (const Variable& variable : variables) {
        if ((variable.bytes == 0) == dynamic && used.count(variable.name) != 0) {
          alignment = std::max(alignment, variable.alignment);
        }
      }
      if (dynamic) end = round_up(end, alignment);
      for (const Variable& variable : variables) {
        if ((variable.bytes == 0) != dynamic || used.count(variable.name) == 0) continue;
        if (!dynamic) end = round_up(end, variable.alignment);
        shared_[variable.name] = end;
        end += variable.bytes;
      }
    }
    kernel_.static_shared_ = end - kernel_.shared_base();
  }

  void lay_out_variables(const Module& module) {
    for (const bool constant : {false, true}) {
      for (const Variable& variable : constant ? module.constant : module.global) {
        auto bytes = std::make_unique<unsigned char[]>(variable.bytes + variable.alignment);
        auto address = reinterpret_cast<std::uint64_t>(bytes.get());
        address = round_up(address, variable.alignment);
        std::copy(variable.values.begin(), variable.values.end(), reinterpret_cast<unsigned char*>(address));
        kernel_.variables_.push_back({address, variable.bytes, !constant, variable.name});
        kernel_.variable_bytes_.push_back(std::move(bytes));
        variables_[variable.name] = address;
      }
    }
    for (const auto* all : {&module.global, &module.constant}) {
      for (const Variable& variable : *all) {
        for (const AddressValue& one : variable.addresses) {
          const std::uint64_t value = (address_of(one.name) + one.addend) >> one.shift;
          std::memset(reinterpret_cast<void*>(variables_.at(variable.name) + one.at), 0, one.bytes);
          std::memcpy(reinterpret_cast<void*>(variables_.at(variable.name) + one.at), &value, one.is_byte ? 1 : one.bytes);
        }
      }
    }
  }

  // Of a variable or a function; 0 of a function that this kernel cannot reach.
  std::uint64_t address_of(const std::string& name) const {
    if (const auto found = variables_.find(name); found != variables_.end()) return found->second;
    const auto found = numbers_.find(name);
    return found == numbers_.end() ? 0 : kFunctionWindow | found->second;
  }

  // What the initial values of a variable speak of, and theirs.
  void note_addresses(const std::string& name, std::set<std::string>& names) const {
    for (const auto* all : {&module_.global, &module_.constant}) {
      for (const Variable& variable : *all) {
        if (variable.name != name) continue;
        for (const AddressValue& one : variable.addresses) {
          if (names.insert(one.name).second) note_addresses(one.name, names);
        }
      }
    }
  }

  static void note_names(const Term& term, std::set<std::string>& names) {
    if (term.kind == Term::Kind::kName) names.insert(term.name);
    for (const Term& inner : term.terms) note_names(inner, names);
  }

  static std::uint64_t round_up(std::uint64_t value, std::uint64_t step) { return (value + step - 1) / step * step; }

  // The end of a body, for ways that reach it.
  void add_return() {
    made_ = {};
    made_.form = find_form("ret");
    made_.handler = made_.form->handler;
    made_.changes = !is_quiet(*made_.form);
    made_.line = kernel_.instructions_.empty() ? part().body->line : kernel_.instructions_.back().line;
    push_instruction(kernel_.written_.empty() ? "" : kernel_.written_.back());
  }

  void add(const Statement& statement) {
    line_ = statement.line;
    opcode_ = statement.opcode;
    const std::string name = statement.opcode + vector_suffix(statement) + (is_of_call(statement) ? " of call" : "");
    const Form* form = find_form(name);
    if (form == nullptr && !is_instruction(name)) fail("PTX has no such instruction");
    if (const std::string part = form == nullptr ? unknown_modifier(statement.opcode) : ""; !part.empty()) {
      fail("PTX has no modifier `" + part + "`");
    }
    if (form == nullptr && find_form(statement.opcode) != nullptr && writes_part(statement)) {
      fail("this instruction writes no part of a register");
    }
    if (form == nullptr) throw Unsupported(name, line_);
    if (!target_has(kernel_.target(), name)) throw PtxError("`" + name + "` is not supported on .target " + kernel_.target(), line_);
    if (statement.opcode.compare(0, 6, "wgmma.") == 0) kernel_.uses_wgmma_ = true;
    made_ = {};
    made_.form = form;
    made_.handler = form->handler;
    made_.changes = !is_quiet(*form);
    made_.line = line_;
    made_.order = order_of(statement.opcode);
    made_.scope = scope_of(statement.opcode);
    if (statement.guarded) {
      Term guard;
      guard.kind = Term::Kind::kRegister;
      guard.index = statement.guard;
      made_.guard = register_operand(guard, kPredicateWidth, false);
      made_.guard.negated = statement.guard_negated;
    }
    if (form->control == Form::Control::kCall) {
      add_call(statement);
      push_instruction(statement.written);
      return;
    }
    check_operand_types(statement, part().body->registers);
    check_constant_operands(statement);
    std::istringstream specs(form->operands);
    std::size_t used = 0;
    for (std::string spec; specs >> spec;) {
      const bool optional = spec.back() == '?' && spec.find('|') == std::string::npos;
      if (used == statement.operands.size()) {
        if (!optional) fail("too few operands");
        made_.operands.emplace_back();
        continue;
      }
      if (optional && is_other(spec, statement.operands[used])) {
        made_.operands.emplace_back();
        continue;
      }
      add_operand(spec, statement.operands[used++], statement);
    }
    if (used != statement.operands.size()) fail("too many operands");
    made_.moves = name == "mov.b32" || name == "mov.f32" || name == "mov.u32" || name == "mov.s32";
    made_.moves = made_.moves && !statement.guarded && made_.operands[1].space != Operand::Space::kSpecial;
    push_instruction(statement.written);
  }

  void push_instruction(std::string_view written) {
    kernel_.instructions_.push_back(made_);
    kernel_.written_.push_back(written);
  }

  // ld.param and st.param of a function's parameters, which are in the thread's local memory.
  bool is_of_call(const Statement& statement) const {
    const bool store = statement.opcode.compare(0, 8, "st.param") == 0;
    if (!store && statement.opcode.compare(0, 8, "ld.param") != 0) return false;
    if (store) return true;
    if (statement.operands.size() != 2 || statement.operands[1].terms.empty()) return false;
    const Term& base = statement.operands[1].terms[0];
    return base.kind == Term::Kind::kName && part().local.count(base.name) != 0;
  }

  // call (results), function, (arguments)    or    call (results), pointer, (arguments), prototype or targets
  void add_call(const Statement& statement) {
    std::size_t at = 0;
    const std::vector<Term> none;
    const auto list = [&]() -> const std::vector<Term>& {
      const bool has = at < statement.operands.size() && statement.operands[at].kind == Term::Kind::kList;
      return has ? statement.operands[at++].terms : none;
    };
    const std::vector<Term>& results = list();
    if (at == statement.operands.size()) fail("no function");
    const Term& callee = statement.operands[at++];
    const std::vector<Term>& arguments = list();
    CallSite site;
    std::vector<std::string> names;
    if (callee.kind == Term::Kind::kRegister) {
      push(callee, 8, false, false);
      site.pointer = made_.operands.back();
      names.assign(pointed_at_.begin(), pointed_at_.end());
      ++at;  // what kind of function it is, of which the functions themselves tell
    } else if (callee.kind == Term::Kind::kName && numbers_.count(callee.name) != 0) {
      names.push_back(callee.name);
    } else {
      fail("`" + callee.name + "` is no function");
    }
    if (at < statement.operands.size()) fail("too many operands");
    for (const std::string& name : names) {
      const std::size_t number = numbers_.at(name);
      const Part& target = parts_[number];
      const Function& function = *target.function;
      if (function.arguments.size() != arguments.size() || function.results.size() != results.size()) {
        if (callee.kind == Term::Kind::kRegister) continue;
        fail("`" + name + "` has " + std::to_string(function.results.size()) + " results and " +
             std::to_string(function.arguments.size()) + " arguments");
      }
      Call call;
      call.name = name;
      call.number = number;
      call.first = target.first;
      call.end = target.end;
      call.is_external = !function.is_defined;
      call.first_register = target.first_register;
      call.end_register = target.end_register;
      call.first_local = target.first_local;
      call.end_local = target.end_local;
      for (std::size_t i = 0; i < arguments.size(); ++i) {
        const Formal& formal = function.arguments[i];
        call.arguments.push_back({actual(arguments[i], formal, false), own(formal, target), formal.bytes});
      }
      for (std::size_t i = 0; i < results.size(); ++i) {
        const Formal& formal = function.results[i];
        call.results.push_back({own(formal, target), actual(results[i], formal, true), formal.bytes});
      }
      site.targets.push_back(std::move(call));
    }
    made_.target = static_cast<std::uint32_t>(kernel_.call_sites_.size());
    kernel_.call_sites_.push_back(std::move(site));
  }

  CallCopy::Place own(const Formal& formal, const Part& of) const {
    if (!formal.in_register) return {{}, of.local.at(formal.name)};
    Operand operand;
    operand.width = static_cast<std::uint8_t>(formal.bytes);
    operand.present = true;
    operand.index = of.first_register + formal.index;
    operand.offset = places_[operand.index];
    return {operand, 0};
  }

  CallCopy::Place actual(const Term& term, const Formal& formal, bool is_result) {
    if (term.kind == Term::Kind::kName) {
      if (const auto found = part().local.find(term.name); found != part().local.end()) {
        const auto& variables = part().body->local;
        const auto variable = std::find_if(variables.begin(), variables.end(),
                                           [&](const Variable& one) { return one.name == term.name; });
        if (variable->bytes != formal.bytes) fail("a parameter of another size");
        return {{}, found->second};
      }
    }
    if (formal.bytes != 2 && formal.bytes != 4 && formal.bytes != 8) fail("an operand that is no parameter");
    const std::size_t sources = made_.sources.size(), destinations = made_.destinations.size();
    push(term, static_cast<unsigned>(formal.bytes), false, is_result);
    made_.sources.resize(sources);
    made_.destinations.resize(destinations);
    return {made_.operands.back(), 0};
  }

  // vadd, vset, not vadd2 or vote
  static bool is_scalar_video(const std::string& opcode) {
    const std::size_t dot = opcode.find('.');
    if (opcode[0] != 'v' || dot == std::string::npos || opcode.compare(0, dot, "vote") == 0) return false;
    return opcode[dot - 1] != '2' && opcode[dot - 1] != '4';
  }

  static bool writes_part(const Statement& statement) {
    return !statement.operands.empty() && statement.operands[0].selector != 0;
  }

  // wgmma with A in registers, tcgen05.mma with A in tensor memory or with a mask, mov.b32 {a, b}, c and mov.b32 c, {a, b} are instructions of their own.
  static std::string vector_suffix(const Statement& statement) {
    if (statement.opcode.compare(0, 16, "wgmma.mma_async.") == 0 && statement.operands.size() > 1 &&
        statement.operands[1].kind == Term::Kind::kVector) {
      return " a" + std::to_string(statement.operands[1].terms.size());
    }
    if (statement.opcode.compare(0, 12, "tcgen05.mma.") == 0) {
      std::string suffix;
      if (statement.operands.size() > 1 && statement.operands[1].kind == Term::Kind::kAddress) suffix = " ta";
      for (const Term& term : statement.operands) {
        if (term.kind == Term::Kind::kVector) suffix += " m" + std::to_string(term.terms.size());
      }
      return suffix;
    }
    if ((statement.opcode.compare(0, 4, "min.") == 0 || statement.opcode.compare(0, 4, "max.") == 0) &&
        statement.operands.size() == 4) {
      return " of3";
    }
    if (is_scalar_video(statement.opcode) && writes_part(statement)) return " part";
    if (statement.opcode.compare(0, 4, "mov.") != 0 || statement.operands.size() != 2) return "";
    const Term& first = statement.operands[0];
    const Term& second = statement.operands[1];
    if (first.kind == Term::Kind::kVector) return " unpack" + std::to_string(first.terms.size());
    if (second.kind == Term::Kind::kVector) return " pack" + std::to_string(second.terms.size());
    return "";
  }

  // Whether this is a register of another width than the optional operand: then it is a later operand.
  bool is_other(const std::string& spec, const Term& term) const {
    if (term.kind != Term::Kind::kRegister) return false;
    const unsigned width = spec[0] == 'p' ? kPredicateWidth : static_cast<unsigned>(spec[0] - '0');
    return part().body->registers[term.index].width != width;
  }

  void add_operand(const std::string& spec, const Term& term, const Statement& statement) {
    const bool destination = spec[0] == '=';
    if (spec[0] == '~') return add_unchecked(spec.substr(1), term, statement);
    const char letter = spec[destination ? 1 : 0];
    if (letter == 'A') return add_address(term);
    if (letter == 'M') return add_coordinates(spec, term);
    if (letter == 'S' || letter == 'G' || letter == 'T') return add_place(term, letter);
    if (letter == 'L') {
      made_.target = label(term, statement.scope);
      return;
    }
    if (letter == 'J') return add_jump_table(term, statement.scope);
    if (letter == 'v') return add_vector(term, destination);
    if (letter == 's' || letter == 'n') return add_part(spec, term, destination);
    const bool wider = letter == 'w';
    const char digit = wider ? spec[destination ? 2 : 1] : letter;
    const unsigned width =
        letter == 'p' ? kPredicateWidth : letter == 'q' ? 16 : static_cast<unsigned>(digit - '0');
    const std::vector<Term> single{term};
    const std::size_t elements = elements_of(spec);
    if (elements > 1 && term.kind != Term::Kind::kVector) fail("not a vector of " + std::to_string(elements));
    for (const Term& element : term.kind == Term::Kind::kVector ? vector_of(spec, term) : single) {
      push(element, width, wider, destination);
    }
    if (spec.find('|') != std::string::npos) {
      if (term.second.empty()) made_.operands.emplace_back();
      else push(term.second[0], kPredicateWidth, false, true);
    } else if (!term.second.empty()) {
      fail("an operand of two parts");
    }
  }

  // A register of 4 bytes or a part of it (s1), or 2 or 4 parts of it (s2, s4); n1 may be negative too.
  void add_part(const std::string& spec, const Term& term, bool destination) {
    const bool may_be_negative = spec[destination ? 1 : 0] == 'n';
    const auto parts = static_cast<unsigned>(spec[destination ? 2 : 1] - '0');
    Term whole = term;
    whole.selector = 0;
    push(whole, 4, false, destination);
    made_.operands.back().addend = term.selector;
    const Selector selector(made_.operands.back());
    if (selector.negative && !may_be_negative) fail("a negative register");
    if (selector.count == 0) return;
    const bool one = parts == 1;
    if (!one && selector.bits != 32 / parts) fail("parts of another size");
    if (one || destination ? selector.count > parts : selector.count != parts) fail("another number of parts");
    const unsigned end = one ? 32 / selector.bits : destination ? parts : 2 * parts;
    for (unsigned at = 0; at < selector.count; ++at) {
      if (selector.index(at) >= end) fail("a part that the register does not have");
    }
  }

  // Registers of which the handler itself knows whether they are read, written, defined.
  void add_unchecked(const std::string& spec, const Term& term, const Statement& statement) {
    const std::size_t before = made_.sources.size();
    add_operand(spec, term, statement);
    made_.sources.resize(before);
  }

  // "2,2" and "4*8".
  static std::size_t elements_of(const std::string& spec) {
    const std::size_t star = spec.find('*');
    if (star != std::string::npos) return std::stoul(spec.substr(star + 1));
    return static_cast<std::size_t>(std::count(spec.begin(), spec.end(), ',') + 1);
  }

  const std::vector<Term>& vector_of(const std::string& spec, const Term& term) const {
    const bool may_be_one = spec.find('*') != std::string::npos;  // {r} of "4*1"
    if ((elements_of(spec) == 1 && !may_be_one) || term.terms.size() != elements_of(spec)) {
      fail("a vector of " + std::to_string(term.terms.size()));
    }
    return term.terms;
  }

  void add_vector(const Term& term, bool destination) {
    const unsigned count = made_.form->count;
    const unsigned width = made_.form->element;
    const std::string_view opcode = opcode_;
    const bool is_access = opcode.compare(0, 3, "ld.") == 0 || opcode.compare(0, 4, "ldu.") == 0 || opcode.compare(0, 3, "st.") == 0;
    const bool wider = is_access && opcode.compare(0, 9, "st.async.") != 0;  // not atomics and reductions
    if (count == 1) {
      if (term.kind != Term::Kind::kVector) return push(term, width, wider, destination);
      if (term.terms.size() != 1) fail("a vector");
      return push(term.terms[0], width, wider, destination);  // {r}
    }
    if (term.kind != Term::Kind::kVector || term.terms.size() != count) {
      fail("not a vector of " + std::to_string(count) + " registers");
    }
    for (const Term& element : term.terms) push(element, width, wider, destination);
  }

  void add_address(const Term& term) {
    if (term.kind != Term::Kind::kAddress) fail("not an address");
    made_.offset = term.value;
    const MemorySpace memory = made_.form->memory;
    if (term.terms.empty()) {
      if (memory != MemorySpace::kShared) fail("an address without a base");
      push_constant(0, 4);
      return;
    }
    const Term& base = term.terms[0];
    if (memory == MemorySpace::kParameter && base.kind == Term::Kind::kRegister) return push(base, 8, false, false);
    if (memory == MemorySpace::kParameter) {
      const auto found = std::find_if(entry_.parameters.begin(), entry_.parameters.end(),
                                      [&](const Parameter& parameter) { return parameter.name == base.name; });
      if (part_ != 0 || base.kind != Term::Kind::kName || found == entry_.parameters.end()) {
        fail("not a parameter of the kernel");
      }
      const std::uint64_t bytes = std::uint64_t{made_.form->element} * made_.form->count;
      if (made_.offset > found->bytes || bytes > found->bytes - made_.offset) {
        fail("a read past the end of the parameter");
      }
      made_.offset += found->offset;
      return;
    }
    if (base.kind == Term::Kind::kName && push_variable(base.name, memory)) return;
    const bool narrow =
        memory == MemorySpace::kShared || memory == MemorySpace::kCluster || memory == MemorySpace::kLocal;
    push(base, narrow ? 4 : 8, narrow, false);
  }

  // The address of a variable of this space; false if the name is another one's.
  bool push_variable(const std::string& name, MemorySpace memory) {
    if (memory == MemorySpace::kShared || memory == MemorySpace::kCluster) {
      const auto found = shared_.find(name);
      if (found != shared_.end()) push_shared(found->second, 4);
      return found != shared_.end();
    }
    const auto& table = memory == MemorySpace::kLocal ? part().local : variables_;
    const auto found = table.find(name);
    if (found != table.end()) push_constant(found->second, memory == MemorySpace::kLocal ? 4 : 8);
    return found != table.end();
  }

  // [map, {c0, c1}]
  void add_coordinates(const std::string& spec, const Term& term) {
    if (term.kind != Term::Kind::kAddress || term.terms.size() != 2 || term.terms[1].kind != Term::Kind::kVector) {
      fail("not an address with coordinates");
    }
    const std::size_t count = std::stoul(spec.substr(1));
    if (term.terms[1].terms.size() != count) fail("not " + std::to_string(count) + " coordinates");
    if (!(term.terms[0].kind == Term::Kind::kName && push_variable(term.terms[0].name, MemorySpace::kGlobal))) {
      push(term.terms[0], 8, false, false);
    }
    made_.operands.back().addend = static_cast<std::uint32_t>(term.value);
    for (const Term& coordinate : term.terms[1].terms) push(coordinate, 4, false, false);
  }

  // An address with an offset of its own: in shared memory, global memory or tensor memory.
  void add_place(const Term& term, char space) {
    if (term.kind != Term::Kind::kAddress) fail("not an address");
    const Term* base = term.terms.empty() ? nullptr : &term.terms[0];
    if (base == nullptr) {
      if (space == 'G') fail("an address without a base");
      push_constant(0, 4);
    } else if (base->kind == Term::Kind::kName) {
      const MemorySpace memory = space == 'S' ? MemorySpace::kShared : MemorySpace::kGlobal;
      if (space == 'T' || !push_variable(base->name, memory)) fail("`" + base->name + "` is not known here");
    } else {
      push(*base, space == 'G' ? 8 : 4, space == 'S', false);
    }
    made_.operands.back().addend = static_cast<std::uint32_t>(term.value);
  }

  void push(const Term& term, unsigned width, bool wider, bool destination) {
    if (term.negated && (destination || width != kPredicateWidth)) fail("`!`");
    if (term.selector != 0) fail("a part of a register, or a negative one");
    switch (term.kind) {
      case Term::Kind::kRegister: {
        const Operand operand = register_operand(term, width, wider);
        (destination ? made_.destinations : made_.sources).push_back(operand.index);
        made_.operands.push_back(operand);
        return;
      }
      case Term::Kind::kInteger:
        if (destination) break;
        if (width == kPredicateWidth) {
          push_constant(term.value != 0 ? kAllLanes : 0, kPredicateWidth);
          made_.operands.back().negated = term.negated;
        } else {
          push_constant(term.value, width);
        }
        return;
      case Term::Kind::kFloat32: {
        if (destination || (width != 4 && width != 8)) break;
        if (width == 4) return push_constant(term.value, width);
        float value = 0;
        const auto word = static_cast<std::uint32_t>(term.value);
        std::memcpy(&value, &word, sizeof(value));
        const double wide = value;
        std::uint64_t bits = 0;
        std::memcpy(&bits, &wide, sizeof(bits));
        return push_constant(bits, width);
      }
      case Term::Kind::kFloat64: {
        if (destination || (width != 4 && width != 8)) break;
        if (width == 8) return push_constant(term.value, width);
        double value = 0;
        std::memcpy(&value, &term.value, sizeof(value));
        const auto narrow = static_cast<float>(value);
        std::uint32_t bits = 0;
        std::memcpy(&bits, &narrow, sizeof(bits));
        return push_constant(bits, width);
      }
      case Term::Kind::kName: {
        if (term.name == "_" && destination && term.value == 0) return push_sink(width);
        if (term.name[0] == '%' && !is_special_register(term.name)) fail("register `" + term.name + "` is not declared");
        if (destination) break;
        const auto& table = special_registers();
        const auto special = std::find_if(table.begin(), table.end(),
                                          [&](const SpecialRegister& one) { return one.name == term.name; });
        if (special != table.end()) {
          if (width != special->width || term.value != 0) break;
          const auto which = static_cast<Special>(special - table.begin());
          push_special(offset_of(which), special->width);
          if (counts_time(which)) {
            made_.handler = with_clock;
            made_.changes = true;  // time goes on
          }
          return;
        }
        if (const auto found = shared_.find(term.name); found != shared_.end() && width >= 4) {
          return push_shared(found->second + term.value, width);
        }
        if (const auto found = part().local.find(term.name); found != part().local.end() && width >= 4) {
          return push_constant(found->second + term.value, width);
        }
        for (const Parameter& parameter : entry_.parameters) {
          if (part_ == 0 && parameter.name == term.name && width == 8) {
            const auto start = reinterpret_cast<std::uint64_t>(kernel_.parameter_bytes().data());
            return push_constant(start + parameter.offset + term.value, 8);
          }
        }
        if (const auto found = variables_.find(term.name); found != variables_.end() && width == 8) {
          return push_constant(found->second + term.value, width);
        }
        if (const auto found = numbers_.find(term.name); found != numbers_.end() && width == 8) {
          return push_constant(kFunctionWindow | found->second, width);
        }
        if (term.name[0] == '%') throw Unsupported(term.name, line_);
        fail("`" + term.name + "` is not known here");
      }
      default: break;
    }
    fail("an operand of another kind than the instruction takes");
  }

  void push_special(std::uint32_t offset, unsigned width) {
    Operand operand;
    operand.space = Operand::Space::kSpecial;
    operand.width = static_cast<std::uint8_t>(width);
    operand.present = true;
    operand.offset = offset;
    made_.operands.push_back(operand);
  }

  // A destination that nobody reads.
  void push_sink(unsigned width) {
    const auto [found, is_new] = sinks_.try_emplace(width, Operand{});
    if (is_new) {
      Operand& operand = found->second;
      operand.width = static_cast<std::uint8_t>(width);
      operand.present = true;
      operand.offset = static_cast<std::uint32_t>(kernel_.register_bytes_);
      operand.index = static_cast<std::uint32_t>(kernel_.registers_.size());
      kernel_.registers_.push_back({"_", width});
      kernel_.register_bytes_ += width == kPredicateWidth ? 16 : width * kLanes;
    }
    made_.destinations.push_back(found->second.index);
    made_.operands.push_back(found->second);
  }

  void push_shared(std::uint64_t address, unsigned width) {
    auto& known = kernel_.shared_addresses_;
    const auto place = static_cast<std::uint32_t>(std::find(known.begin(), known.end(), address) - known.begin());
    if (place == known.size()) known.push_back(address);
    push_special(special_bytes() + place * (4 + 8) * kLanes + (width == 8 ? 4 * kLanes : 0), width);
  }

  Operand register_operand(const Term& term, unsigned width, bool wider) const {
    const Register& reg = part().body->registers[term.index];
    const bool predicate = width == kPredicateWidth;
    const bool fits = wider ? reg.width >= width && reg.width != kPredicateWidth : reg.width == width;
    if (!fits) {
      fail("register `" + reg.name + "` is " +
           (reg.width == kPredicateWidth ? "a predicate" : "of " + std::to_string(reg.width) + " bytes") +
           "; the instruction takes " + (predicate ? "a predicate" : std::to_string(width) + " bytes"));
    }
    Operand operand;
    operand.width = static_cast<std::uint8_t>(reg.width);
    operand.negated = term.negated;
    operand.present = true;
    operand.index = part().first_register + term.index;
    operand.offset = places_[operand.index];
    return operand;
  }

  void push_constant(std::uint64_t value, unsigned width) {
    if (width < 8 && width != kPredicateWidth) value &= (std::uint64_t{1} << (8 * width)) - 1;
    const auto [found, is_new] = constants_.try_emplace({value, width}, kernel_.constants_.size());
    if (is_new) {
      for (unsigned lane = 0; lane < kLanes; ++lane) {
        const auto* bytes = reinterpret_cast<const unsigned char*>(&value);
        kernel_.constants_.insert(kernel_.constants_.end(), bytes, bytes + (width == kPredicateWidth ? 4 : width));
      }
    }
    Operand operand;
    operand.space = Operand::Space::kConstants;
    operand.width = static_cast<std::uint8_t>(width);
    operand.present = true;
    operand.offset = static_cast<std::uint32_t>(found->second);
    made_.operands.push_back(operand);
  }

  // The name of a list of labels.
  void add_jump_table(const Term& term, unsigned scope) {
    for (int at = static_cast<int>(scope); at >= 0; at = part().body->scopes[static_cast<unsigned>(at)].parent) {
      const auto& tables = part().body->scopes[static_cast<unsigned>(at)].tables;
      const auto found = tables.find(term.name);
      if (found == tables.end()) continue;
      for (const Term& one : found->second) made_.targets.push_back(label(one, scope));
      return;
    }
    fail("no list of `.branchtargets`");
  }

  std::uint32_t label(const Term& term, unsigned scope) const {
    if (term.kind != Term::Kind::kName || term.value != 0) fail("not a label");
    for (int at = static_cast<int>(scope); at >= 0; at = part().body->scopes[static_cast<unsigned>(at)].parent) {
      const auto& labels = part().body->scopes[static_cast<unsigned>(at)].labels;
      if (const auto found = labels.find(term.name); found != labels.end()) {
        return part().first + static_cast<std::uint32_t>(found->second);
      }
    }
    fail("label `" + term.name + "` is not known here");
  }

  [[noreturn]] void fail(const std::string& what) const { throw PtxError("`" + opcode_ + "`: " + what, line_); }

  Kernel& kernel_;
  const Module& module_;
  const Entry& entry_;
  std::vector<Part> parts_;
  std::size_t part_ = 0;                        // whose statements are being added
  std::map<std::string, std::size_t> numbers_;  // of parts: functions by name
  std::set<std::string> pointed_at_;
  std::map<std::string, std::uint64_t> shared_, variables_;  // addresses
  std::vector<std::uint32_t> places_;  // of registers
  std::map<std::pair<std::uint64_t, unsigned>, std::size_t> constants_;
  std::map<unsigned, Operand> sinks_;
  Instruction made_;
  int line_ = 0;
  std::string opcode_;
};

// Registers of a thread that ptxas 13 leaves to a kernel which changes them: those that its directives name, or what the
// blocks that shall fit on a multiprocessor leave to a thread. 0 where the text says neither: then ptxas ignores
// setmaxnreg, and says so.
unsigned registers_at_start(const Entry& entry) {
  constexpr unsigned kPartitions = 4, kRegisters = 16384, kMostOfAThread = 256;  // of a multiprocessor; in each
  if (entry.max_registers != 0) return entry.max_registers;
  const auto& required = entry.required_threads;
  const unsigned threads = required[0] != 0 ? required[0] * required[1] * required[2] : entry.max_threads;
  if (threads == 0 || entry.blocks_a_multiprocessor == 0) return 0;
  const std::uint64_t warps = std::max<std::uint64_t>(
      1, (std::uint64_t{threads} + kLanes - 1) / kLanes * entry.blocks_a_multiprocessor);
  const std::uint64_t each = kRegisters / (kLanes * ((warps + kPartitions - 1) / kPartitions));
  return static_cast<unsigned>(std::min<std::uint64_t>(each, kMostOfAThread) / 8 * 8);
}

Kernel::Kernel(std::string_view source, const std::string& entry) : text_(std::make_shared<const std::string>(source)) {
  const Module module = parse(*text_);
  const Entry* found = nullptr;
  std::string names;
  for (const Entry& candidate : module.entries) {
    names += (names.empty() ? "" : ", ") + candidate.name;
    if (candidate.name == entry || (entry.empty() && module.entries.size() == 1)) found = &candidate;
  }
  if (found == nullptr) throw std::invalid_argument("entry: '" + entry + "'; the PTX has: " + names);
  name_ = found->name;
  target_ = module.target;
  parameters_ = found->parameters;
  required_threads_ = found->required_threads;
  max_threads_ = found->max_threads;
  required_cluster_ = found->required_cluster;
  most_cluster_blocks_ = found->most_cluster_blocks;
  explicit_cluster_ = found->explicit_cluster;
  if (found->statements.empty()) throw PtxError("kernel `" + name_ + "` has no instruction", found->line);
  // At an address that does not change, for kernels that take the address of a parameter.
  constexpr std::size_t kAlignment = 64;
  const std::size_t bytes = parameters_.empty() ? 0 : parameters_.back().offset + parameters_.back().bytes;
  parameter_memory_.resize(bytes + kAlignment);
  const auto address = reinterpret_cast<std::uintptr_t>(parameter_memory_.data());
  parameter_bytes_ = {parameter_memory_.data() + (kAlignment - address % kAlignment) % kAlignment, bytes};
  variables_.push_back(
      {reinterpret_cast<std::uint64_t>(parameter_bytes_.data()), bytes, false, "the kernel's parameters"});
  Preparation(*this, module, *found);
  unsigned most = 0;  // that a warp may ask for
  for (const Instruction& one : instructions_) {
    if (one.form->opcode.compare(0, 11, "setmaxnreg.") != 0) continue;
    if (one.operands[0].space != Operand::Space::kConstants) throw PtxError("setmaxnreg takes a constant", one.line);
    most = std::max(most, *reinterpret_cast<const std::uint32_t*>(constants_.data() + one.operands[0].offset));
  }
  registers_a_thread_ = std::min(most, registers_at_start(*found));
}

std::string Kernel::text_of(std::uint32_t pc) const {
  constexpr std::size_t kMost = 120;  // of wgmma with its registers the beginning is enough to find it
  if (pc >= written_.size()) return "";
  std::string made;
  for (const char c : written_[pc]) {
    const bool blank = std::isspace(static_cast<unsigned char>(c)) != 0;
    if (!blank || (!made.empty() && made.back() != ' ')) made += blank ? ' ' : c;
  }
  while (!made.empty() && made.back() == ' ') made.pop_back();
  return made.size() <= kMost ? made : made.substr(0, kMost) + "...";
}

SourcePlace Kernel::source_of(std::uint32_t pc) const {
  std::call_once(has_sources_, [this] { sources_ = std::make_unique<const SourceLines>(*text_); });
  return sources_->of(line_of(pc));
}

void Kernel::set_parameters(const std::vector<unsigned char>& bytes) {
  const auto offset = parameter_bytes_.data() - parameter_memory_.data();
  std::copy(bytes.begin(), bytes.end(), parameter_memory_.begin() + offset);
}

std::unique_ptr<WarpProgram> Kernel::make_warp(ThreadBlock& block, unsigned index, unsigned lanes) const {
  return std::make_unique<PtxWarp>(*this, block, index, lanes);
}

void Kernel::check_block(const std::array<unsigned, 3>& block) const {
  const auto text = [](const std::array<unsigned, 3>& size) {
    return std::to_string(size[0]) + " x " + std::to_string(size[1]) + " x " + std::to_string(size[2]);
  };
  if (required_threads_[0] != 0 && required_threads_ != block) {
    throw std::invalid_argument("block: " + text(block) + "; the kernel demands " + text(required_threads_));
  }
  if (max_threads_ != 0 && block[0] * block[1] * block[2] > max_threads_) {
    throw std::invalid_argument("block: " + text(block) + "; the kernel takes " + std::to_string(max_threads_) +
                                " threads at most");
  }
}

void Kernel::check_cluster(LaunchShape& shape) const {
  const bool demands = required_cluster_[0] != 0;
  if (demands && !shape.asks_for_cluster) shape.cluster = required_cluster_;
  if (demands && required_cluster_ != shape.cluster) {
    throw std::invalid_argument("kernel " + name_ + ": launched in clusters of " + std::to_string(shape.cluster_blocks()) +
                                " blocks; it demands " + std::to_string(required_cluster_[0]) + " x " +
                                std::to_string(required_cluster_[1]) + " x " + std::to_string(required_cluster_[2]));
  }
  if (explicit_cluster_ && !demands && !shape.asks_for_cluster) {
    throw std::invalid_argument("kernel " + name_ + ": launched without a cluster's size, which it demands (.explicitcluster)");
  }
  if (most_cluster_blocks_ != 0 && shape.cluster_blocks() > most_cluster_blocks_) {
    throw std::invalid_argument("kernel " + name_ + ": launched in clusters of " + std::to_string(shape.cluster_blocks()) +
                                " blocks; it takes " + std::to_string(most_cluster_blocks_) + " at most (.maxclusterrank)");
  }
}

}  // namespace msa_ops::emulator::ptx

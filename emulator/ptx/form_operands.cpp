#include "form_operands.hpp"

#include <algorithm>
#include <sstream>
#include <string_view>

#include "error.hpp"
#include "selector.hpp"

namespace msa_ops::emulator::ptx {
namespace {

// "2,2" and "4*8".
std::size_t elements_of(const std::string& spec) {
  const std::size_t star = spec.find('*');
  if (star != std::string::npos) return std::stoul(spec.substr(star + 1));
  return static_cast<std::size_t>(std::count(spec.begin(), spec.end(), ',') + 1);
}

}  // namespace

void FormOperands::add(const Statement& statement) {
  std::istringstream specs(made().form->operands);
  std::size_t used = 0;
  for (std::string spec; specs >> spec;) {
    const bool optional = spec.back() == '?' && spec.find('|') == std::string::npos;
    if (used == statement.operands.size()) {
      if (!optional) fail("too few operands");
      made().operands.emplace_back();
      continue;
    }
    if (optional && is_other(spec, statement.operands[used])) {
      made().operands.emplace_back();
      continue;
    }
    add_operand(spec, statement.operands[used++], statement);
  }
  if (used != statement.operands.size()) fail("too many operands");
}

// Whether this is a register of another width than the optional operand: then it is a later operand.
bool FormOperands::is_other(const std::string& spec, const Term& term) const {
  if (term.kind != Term::Kind::kRegister) return false;
  const unsigned width = spec[0] == 'p' ? kPredicateWidth : static_cast<unsigned>(spec[0] - '0');
  return maker_.part().body->registers[term.index].width != width;
}

void FormOperands::add_operand(const std::string& spec, const Term& term, const Statement& statement) {
  const bool destination = spec[0] == '=';
  if (spec[0] == '~') return add_unchecked(spec.substr(1), term, statement);
  const char letter = spec[destination ? 1 : 0];
  if (letter == 'A') return add_address(term);
  if (letter == 'M') return add_coordinates(spec, term);
  if (letter == 'S' || letter == 'G' || letter == 'T') return add_place(term, letter);
  if (letter == 'L') {
    made().target = label(term, statement.scope);
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
  if ((elements > 1 || spec.find('*') != std::string::npos) && term.kind != Term::Kind::kVector) {
    fail("not a vector of " + std::to_string(elements));
  }
  for (const Term& element : term.kind == Term::Kind::kVector ? vector_of(spec, term) : single) {
    maker_.push(element, width, wider, destination);
  }
  if (spec.find('|') != std::string::npos) {
    if (term.second.empty()) made().operands.emplace_back();
    else maker_.push(term.second[0], kPredicateWidth, false, true);
  } else if (!term.second.empty()) {
    fail("an operand of two parts");
  }
}

// A register of 4 bytes or a part of it (s1), or 2 or 4 parts of it (s2, s4); n1 may be negative too.
void FormOperands::add_part(const std::string& spec, const Term& term, bool destination) {
  const bool may_be_negative = spec[destination ? 1 : 0] == 'n';
  const auto parts = static_cast<unsigned>(spec[destination ? 2 : 1] - '0');
  Term whole = term;
  whole.selector = 0;
  maker_.push(whole, 4, false, destination);
  made().operands.back().addend = term.selector;
  const Selector selector(made().operands.back());
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
void FormOperands::add_unchecked(const std::string& spec, const Term& term, const Statement& statement) {
  const std::size_t before = made().sources.size();
  add_operand(spec, term, statement);
  made().sources.resize(before);
}

const std::vector<Term>& FormOperands::vector_of(const std::string& spec, const Term& term) const {
  const bool may_be_one = spec.find('*') != std::string::npos;  // {r} of "4*1"
  if ((elements_of(spec) == 1 && !may_be_one) || term.terms.size() != elements_of(spec)) {
    fail("a vector of " + std::to_string(term.terms.size()));
  }
  return term.terms;
}

void FormOperands::add_vector(const Term& term, bool destination) {
  const unsigned count = made().form->count;
  const unsigned width = made().form->element;
  const std::string_view opcode = maker_.opcode();
  const bool is_access =
      opcode.compare(0, 3, "ld.") == 0 || opcode.compare(0, 4, "ldu.") == 0 || opcode.compare(0, 3, "st.") == 0;
  const bool wider = is_access && opcode.compare(0, 9, "st.async.") != 0;  // not atomics and reductions
  if (count == 1) {
    if (term.kind != Term::Kind::kVector) return maker_.push(term, width, wider, destination);
    if (term.terms.size() != 1) fail("a vector");
    return maker_.push(term.terms[0], width, wider, destination);  // {r}
  }
  if (term.kind != Term::Kind::kVector || term.terms.size() != count) {
    fail("not a vector of " + std::to_string(count) + " registers");
  }
  for (const Term& element : term.terms) maker_.push(element, width, wider, destination);
}

void FormOperands::add_address(const Term& term) {
  const std::string& opcode = maker_.opcode();
  const bool is_access =
      opcode.compare(0, 3, "ld.") == 0 || opcode.compare(0, 4, "ldu.") == 0 || opcode.compare(0, 3, "st.") == 0;
  if (is_access && term.kind == Term::Kind::kName && term.is_subscript) {
    Term address;  // ld.global.b32 %r1, variable[4]
    address.kind = Term::Kind::kAddress;
    address.value = maker_.distance(term);
    address.terms = {term};
    address.terms[0].value = 0;
    address.terms[0].is_subscript = false;
    return add_address(address);
  }
  if (term.kind != Term::Kind::kAddress) fail("not an address");
  made().offset = term.value;
  const MemorySpace memory = made().form->memory;
  if (term.terms.empty()) {
    if (memory != MemorySpace::kShared) fail("an address without a base");
    maker_.push_constant(0, 4);
    return;
  }
  const Term& base = term.terms[0];
  if (memory == MemorySpace::kParameter && base.kind == Term::Kind::kRegister) return maker_.push(base, 8, false, false);
  const auto found = std::find_if(maker_.entry().parameters.begin(), maker_.entry().parameters.end(),
                                  [&](const Parameter& parameter) { return parameter.name == base.name; });
  const bool is_parameter =
      maker_.is_in_kernel() && base.kind == Term::Kind::kName && found != maker_.entry().parameters.end();
  if (memory == MemorySpace::kGeneric && is_parameter) fail("`" + base.name + "` is a parameter: .param is missing");
  if (memory == MemorySpace::kParameter) {
    if (!is_parameter) {
      fail(base.name.empty() ? "not a parameter of the kernel" : "`" + base.name + "` is not a parameter of the kernel");
    }
    const std::uint64_t bytes = std::uint64_t{made().form->element} * made().form->count;
    if (made().offset > found->bytes || bytes > found->bytes - made().offset) {
      fail("a read past the end of the parameter");
    }
    made().offset += found->offset;
    return;
  }
  if (base.kind == Term::Kind::kName && maker_.push_variable(base.name, memory)) return;
  const bool narrow =
      memory == MemorySpace::kShared || memory == MemorySpace::kCluster || memory == MemorySpace::kLocal ||
      memory == MemorySpace::kConstant;
  maker_.push(base, narrow ? 4 : 8, narrow, false);
}

// [map, {c0, c1}]
void FormOperands::add_coordinates(const std::string& spec, const Term& term) {
  if (term.kind != Term::Kind::kAddress || term.terms.size() != 2 || term.terms[1].kind != Term::Kind::kVector) {
    fail("not an address with coordinates");
  }
  const std::size_t count = std::stoul(spec.substr(1));
  if (term.terms[1].terms.size() != count) fail("not " + std::to_string(count) + " coordinates");
  if (!(term.terms[0].kind == Term::Kind::kName && maker_.push_variable(term.terms[0].name, MemorySpace::kGlobal))) {
    maker_.push(term.terms[0], 8, false, false);
  }
  made().operands.back().addend = static_cast<std::uint32_t>(term.value);
  for (const Term& coordinate : term.terms[1].terms) maker_.push(coordinate, 4, false, false);
}

// An address with an offset of its own: in shared memory, global memory or tensor memory.
void FormOperands::add_place(const Term& term, char space) {
  if (term.kind != Term::Kind::kAddress) fail("not an address");
  const Term* base = term.terms.empty() ? nullptr : &term.terms[0];
  if (base == nullptr) {
    if (space != 'S') fail("an address without a base");
    maker_.push_constant(0, 4);
  } else if (base->kind == Term::Kind::kName) {
    const MemorySpace memory = space == 'S' ? MemorySpace::kShared : MemorySpace::kGlobal;
    if (space == 'T' || !maker_.push_variable(base->name, memory)) fail("`" + base->name + "` is not known here");
  } else {
    maker_.push(*base, space == 'G' ? 8 : 4, space == 'S', false);
  }
  made().operands.back().addend = static_cast<std::uint32_t>(term.value);
}

// The name of a list of labels.
void FormOperands::add_jump_table(const Term& term, unsigned scope) {
  for (int at = static_cast<int>(scope); at >= 0; at = maker_.part().body->scopes[static_cast<unsigned>(at)].parent) {
    const auto& tables = maker_.part().body->scopes[static_cast<unsigned>(at)].tables;
    const auto found = tables.find(term.name);
    if (found == tables.end()) continue;
    for (const Term& one : found->second) made().targets.push_back(label(one, scope));
    return;
  }
  fail("no list of `.branchtargets`");
}

std::uint32_t FormOperands::label(const Term& term, unsigned scope) const {
  if (term.kind != Term::Kind::kName || term.value != 0) fail("not a label");
  for (int at = static_cast<int>(scope); at >= 0; at = maker_.part().body->scopes[static_cast<unsigned>(at)].parent) {
    const auto& labels = maker_.part().body->scopes[static_cast<unsigned>(at)].labels;
    if (const auto found = labels.find(term.name); found != labels.end()) {
      return maker_.part().first + static_cast<std::uint32_t>(found->second);
    }
  }
  fail("label `" + term.name + "` is not known here");
}

}  // namespace msa_ops::emulator::ptx

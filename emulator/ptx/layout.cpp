#include "layout.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "calls.hpp"
#include "error.hpp"

namespace msa_ops::emulator::ptx {
namespace {

constexpr std::size_t kMostLocalBytes = 512 * 1024;  // of a thread, as on every chip
constexpr std::size_t kMostFunctions = 1000;

void note_names(const Term& term, std::set<std::string>& names) {
  if (term.kind == Term::Kind::kName) names.insert(term.name);
  for (const Term& inner : term.terms) note_names(inner, names);
}

std::uint64_t round_up(std::uint64_t value, std::uint64_t step) { return (value + step - 1) / step * step; }

}  // namespace

Layout::Layout(Prepared& prepared, const Module& module, const Entry& entry, std::uint64_t shared_base)
    : prepared_(prepared), module_(module), shared_base_(shared_base) {
  collect(entry, nullptr);
  lay_out_bodies();
  lay_out_shared();
  lay_out_variables();
}

// Parts in the order in which calls lead to them. A function that is named other than by a call may be called by any
// pointer.
void Layout::collect(const Body& body, const Function* function) {
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

void Layout::lay_out_bodies() {
  std::uint32_t at = 0;
  for (Part& one : parts_) {
    one.first = at;
    at += static_cast<std::uint32_t>(one.body->statements.size()) + (parts_.size() > 1 ? 1 : 0);
    one.end = at;
    one.first_register = static_cast<std::uint32_t>(prepared_.registers.size());
    for (const Register& reg : one.body->registers) {
      places_.push_back(static_cast<std::uint32_t>(prepared_.register_bytes));
      prepared_.register_bytes += reg.width == kPredicateWidth ? 16 : reg.width * kLanes;
      prepared_.registers.push_back(reg);
    }
    one.end_register = static_cast<std::uint32_t>(prepared_.registers.size());
    one.first_local = prepared_.local_bytes;
    for (const Variable& variable : one.body->local) {
      prepared_.local_bytes = round_up(prepared_.local_bytes, variable.alignment);
      one.local[variable.name] = prepared_.local_bytes;
      prepared_.local_bytes += variable.bytes;
      if (prepared_.local_bytes > kMostLocalBytes) {
        throw PtxError("more than " + std::to_string(kMostLocalBytes) + " bytes of local memory a thread",
                       one.body->line);
      }
    }
    one.end_local = prepared_.local_bytes;
  }
  prepared_.instructions.reserve(at);
}

// Static variables first, then the dynamic ones, which all start at the same place.
void Layout::lay_out_shared() {
  std::vector<Variable> variables = module_.shared;
  std::set<std::string> used;
  for (const Part& one : parts_) {
    variables.insert(variables.end(), one.body->shared.begin(), one.body->shared.end());
    for (const Statement& statement : one.body->statements) {
      for (const Term& term : statement.operands) note_names(term, used);
    }
  }
  std::uint64_t end = shared_base_;
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
  prepared_.static_shared = end - shared_base_;
}

void Layout::lay_out_variables() {
  for (const Variable& variable : module_.global) {
    auto bytes = std::make_unique<unsigned char[]>(variable.bytes + variable.alignment);
    place_variable(variable, round_up(reinterpret_cast<std::uint64_t>(bytes.get()), variable.alignment), true);
    prepared_.variable_bytes.push_back(std::move(bytes));
  }
  lay_out_constants();
  write_addresses();
}

// In one piece of memory within 4 GB of addresses, so that 32 bits of an address tell the rest; apart, so that an access
// past the end of one is none of another.
void Layout::lay_out_constants() {
  constexpr std::uint64_t kApart = 64;
  std::uint64_t bytes = 1;
  for (const Variable& variable : module_.constant) bytes += variable.bytes + variable.alignment + kApart;
  std::uint64_t at = 0;
  for (bool whole = false; !whole;) {
    prepared_.variable_bytes.push_back(std::make_unique<unsigned char[]>(bytes));
    at = reinterpret_cast<std::uint64_t>(prepared_.variable_bytes.back().get());
    whole = at >> 32 == (at + bytes) >> 32;
  }
  prepared_.constant_window = at >> 32 << 32;
  for (const Variable& variable : module_.constant) {
    at = round_up(at, variable.alignment);
    place_variable(variable, at, false);
    constants_.insert(variable.name);
    at += variable.bytes + kApart;
  }
}

void Layout::place_variable(const Variable& variable, std::uint64_t address, bool writable) {
  std::copy(variable.values.begin(), variable.values.end(), reinterpret_cast<unsigned char*>(address));
  prepared_.variables.push_back({address, variable.bytes, writable, variable.name});
  variables_[variable.name] = address;
}

// Of variables and functions as initial values.
void Layout::write_addresses() {
  for (const auto* all : {&module_.global, &module_.constant}) {
    for (const Variable& variable : *all) {
      for (const AddressValue& one : variable.addresses) {
        const std::uint64_t value = (address_of(one.name) + one.addend) >> one.shift;
        auto* place = reinterpret_cast<unsigned char*>(variables_.at(variable.name) + one.at);
        std::memset(place, 0, one.bytes);
        std::memcpy(place, &value, one.is_byte ? 1 : one.bytes);
      }
    }
  }
}

// Of a variable or a function; 0 of a function that this kernel cannot reach.
std::uint64_t Layout::address_of(const std::string& name) const {
  if (const auto found = variables_.find(name); found != variables_.end()) return found->second;
  const auto found = numbers_.find(name);
  return found == numbers_.end() ? 0 : kFunctionWindow | found->second;
}

std::uint64_t Layout::code_of(const std::string& name) const {
  if (const auto found = numbers_.find(name); found != numbers_.end()) return kFunctionWindow | found->second;
  for (std::size_t at = 0; at < module_.entries.size(); ++at) {
    if (module_.entries[at].name == name) return kKernelWindow | at;
  }
  return 0;
}

std::uint64_t Layout::element_bytes(const Part& part, const std::string& name) const {
  for (const auto* all : {&part.body->shared, &part.body->local, &module_.shared, &module_.global, &module_.constant}) {
    const auto found = std::find_if(all->begin(), all->end(), [&](const Variable& one) { return one.name == name; });
    if (found != all->end()) return found->element_bytes;
  }
  return 0;
}

// What the initial values of a variable speak of, and theirs.
void Layout::note_addresses(const std::string& name, std::set<std::string>& names) const {
  for (const auto* all : {&module_.global, &module_.constant}) {
    for (const Variable& variable : *all) {
      if (variable.name != name) continue;
      for (const AddressValue& one : variable.addresses) {
        if (names.insert(one.name).second) note_addresses(one.name, names);
      }
    }
  }
}

}  // namespace msa_ops::emulator::ptx

#include "scopes.hpp"

#include "error.hpp"

namespace msa_ops::emulator::ptx {

void Scopes::declare(const std::string& name, std::uint32_t index, int line) {
  Scope& scope = all_.back();
  if (scope.variables.count(name) != 0 || !scope.registers.emplace(name, index).second) {
    throw PtxError("register `" + name + "` twice", line);
  }
}

void Scopes::declare_vector(const std::string& name, std::uint32_t first, unsigned count, int line) {
  Scope& scope = all_.back();
  if (scope.registers.count(name) != 0 || !scope.vectors.emplace(name, std::make_pair(first, count)).second) {
    throw PtxError("register `" + name + "` twice", line);
  }
  for (unsigned i = 0; i < count; ++i) scope.registers.emplace(name + "." + "rgba"[i], first + i);
}

void Scopes::declare_variable(const std::string& name, int line) {
  Scope& scope = all_.back();
  if (scope.registers.count(name) != 0 || scope.renamed.count(name) != 0 || !scope.variables.insert(name).second) {
    throw PtxError("`" + name + "` twice", line);
  }
}

void Scopes::rename(const std::string& name, const std::string& own, int line) {
  if (!all_.back().renamed.emplace(name, own).second) throw PtxError("`" + name + "` twice", line);
}

bool Scopes::find_register(Term& made) const {
  for (auto scope = all_.rbegin(); scope != all_.rend(); ++scope) {
    if (const auto vector = scope->vectors.find(made.name); vector != scope->vectors.end()) {
      made.kind = Term::Kind::kVector;
      for (unsigned i = 0; i < vector->second.second; ++i) {
        Term element;
        element.kind = Term::Kind::kRegister;
        element.index = vector->second.first + i;
        made.terms.push_back(element);
      }
      return true;
    }
    const auto found = scope->registers.find(made.name);
    if (found == scope->registers.end()) continue;
    made.kind = Term::Kind::kRegister;
    made.index = found->second;
    return true;
  }
  return false;
}

bool Scopes::find_renamed(Term& made) const {
  for (auto scope = all_.rbegin(); scope != all_.rend(); ++scope) {
    const auto found = scope->renamed.find(made.name);
    if (found == scope->renamed.end()) continue;
    made.name = found->second;
    return true;
  }
  return false;
}

}  // namespace msa_ops::emulator::ptx

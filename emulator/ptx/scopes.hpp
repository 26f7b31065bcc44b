// Names in the scopes around a place of a body.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "syntax.hpp"

namespace msa_ops::emulator::ptx {

class Scopes {
 public:
  void open() { all_.emplace_back(); }
  void close() { all_.pop_back(); }
  std::size_t depth() const { return all_.size(); }

  // Each in the innermost scope, where it must be new: PtxError.
  void declare(const std::string& name, std::uint32_t index, int line);  // a register
  // .v2 or .v4 registers from `first` on, with the names .r to .a of its elements; those with .x to .w are declared one by one
  void declare_vector(const std::string& name, std::uint32_t first, unsigned count, int line);
  void declare_variable(const std::string& name, int line);
  // A variable that the body knows by another name than the text.
  void rename(const std::string& name, const std::string& own, int line);

  // What a name says: a register or a vector of them, or the other name of a variable; else the term stays as it is.
  bool find_register(Term& made) const;
  bool find_renamed(Term& made) const;

 private:
  struct Scope {
    std::unordered_map<std::string, std::uint32_t> registers;
    std::unordered_map<std::string, std::pair<std::uint32_t, unsigned>> vectors;  // the first of how many
    std::unordered_map<std::string, std::string> renamed;
    std::unordered_set<std::string> variables;
  };
  std::vector<Scope> all_;
};

}  // namespace msa_ops::emulator::ptx

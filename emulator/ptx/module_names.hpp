// Names of a module: variables, kernels and functions, of which PTX lets no two have the same.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "syntax.hpp"

namespace msa_ops::emulator::ptx {

class ModuleNames {
 public:
  // A variable in ".global", ".const" or ".shared", after `linking`: .extern, .visible, .weak, .common or nothing. One
  // that other modules have may be declared several times, alike, and then be defined. Whether it is the first of its name.
  bool declare(const Variable& made, const std::string& space, std::string_view linking, int line);
  // A kernel (".entry") or a function (".func").
  void claim(const std::string& name, const char* kind, int line);
  bool is_static(const std::string& name) const;  // a variable of .global or .const
  // There is no linker here: what is external must be defined in the same text. `line`: its last.
  void check_externals(int line) const;

 private:
  struct Known {
    std::string space;
    std::uint64_t bytes = 0, alignment = 0;
    bool is_external = false;  // so far
  };
  std::map<std::string, Known> all_;
};

}  // namespace msa_ops::emulator::ptx

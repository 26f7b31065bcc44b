// The kernel and the functions that it may call, and where their registers, variables and instructions are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "prepared.hpp"
#include "syntax.hpp"

namespace msa_ops::emulator::ptx {

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

class Layout {
 public:
  // Fills in registers, variables and sizes of memory. Throws Unsupported for functions that call themselves or have no
  // text, PtxError for more memory or functions than a kernel may have.
  Layout(Prepared& prepared, const Module& module, const Entry& entry, std::uint64_t shared_base);

  const std::vector<Part>& parts() const { return parts_; }  // the kernel's own first
  const std::map<std::string, std::size_t>& numbers() const { return numbers_; }  // of parts: functions by name
  const std::set<std::string>& pointed_at() const { return pointed_at_; }  // functions that a pointer may name
  const std::map<std::string, std::uint64_t>& shared() const { return shared_; }        // addresses
  const std::map<std::string, std::uint64_t>& variables() const { return variables_; }  // of .global and .const
  bool is_constant(const std::string& name) const { return constants_.count(name) != 0; }  // of .const
  // What a function or a kernel has as its address, which no access to memory takes; 0 of other names.
  std::uint64_t code_of(const std::string& name) const;
  // Of an element of an array; 0 of other names.
  std::uint64_t element_bytes(const Part& part, const std::string& name) const;
  std::uint32_t place(std::uint32_t reg) const { return places_[reg]; }  // of a register, in bytes

 private:
  void collect(const Body& body, const Function* function);
  void lay_out_bodies();
  void lay_out_shared();
  void lay_out_variables();
  void lay_out_constants();
  void place_variable(const Variable& variable, std::uint64_t address, bool writable);
  void write_addresses();
  std::uint64_t address_of(const std::string& name) const;
  void note_addresses(const std::string& name, std::set<std::string>& names) const;

  Prepared& prepared_;
  const Module& module_;
  std::uint64_t shared_base_;
  std::vector<Part> parts_;
  std::map<std::string, std::size_t> numbers_;
  std::set<std::string> pointed_at_;
  std::map<std::string, std::uint64_t> shared_, variables_;
  std::set<std::string> constants_;
  std::vector<std::uint32_t> places_;
};

}  // namespace msa_ops::emulator::ptx

// A kernel of a PTX module, checked as a whole and ready to run.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "../device/program.hpp"
#include "instruction.hpp"
#include "syntax.hpp"

namespace msa_ops::emulator::ptx {

// Special registers, a row of 32-bit values each, in this order in Operand::Space::kSpecial.
extern const std::vector<std::string> kSpecialRegisters;

class Kernel : public Program {
 public:
  // Throws PtxError or Unsupported for the first instruction that cannot be executed, std::invalid_argument if the
  // module has no such entry. An empty name takes the only entry.
  Kernel(std::string_view source, const std::string& entry);

  const std::string& name() const override { return name_; }
  unsigned warp_size() const override { return kLanes; }
  std::uint64_t shared_base() const override { return 1024; }  // the first KB is the system's on sm_90
  std::size_t static_shared_memory() const override { return static_shared_; }
  std::unique_ptr<WarpProgram> make_warp(ThreadBlock& block, unsigned index, unsigned lanes) const override;

  // Throws std::invalid_argument if the kernel demands another number of threads.
  void check_block(const std::array<unsigned, 3>& block) const;
  // Bytes of the parameters, in order.
  const std::vector<Parameter>& parameters() const { return parameters_; }
  void set_parameters(std::vector<unsigned char> bytes) { parameter_bytes_ = std::move(bytes); }

  const std::vector<unsigned char>& parameter_bytes() const { return parameter_bytes_; }
  const std::vector<Instruction>& instructions() const { return instructions_; }
  const std::vector<unsigned char>& constants() const { return constants_; }
  std::size_t register_bytes() const { return register_bytes_; }
  const std::vector<Register>& registers() const { return registers_; }
  bool uses_wgmma() const { return uses_wgmma_; }

 private:
  friend class Preparation;
  std::string name_;
  std::vector<Parameter> parameters_;
  std::vector<unsigned char> parameter_bytes_;
  std::array<unsigned, 3> required_threads_{};
  unsigned max_threads_ = 0;
  std::size_t static_shared_ = 0;
  std::vector<Register> registers_;
  std::size_t register_bytes_ = 0;
  std::vector<unsigned char> constants_;
  std::vector<Instruction> instructions_;
  bool uses_wgmma_ = false;
};

}  // namespace msa_ops::emulator::ptx

// A kernel of a PTX module, checked as a whole and ready to run.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "../device/global_memory.hpp"
#include "../device/grid.hpp"
#include "../device/program.hpp"
#include "calls.hpp"
#include "instruction.hpp"
#include "source_lines.hpp"
#include "syntax.hpp"

namespace msa_ops::emulator::ptx {

class Kernel : public Program {
 public:
  // Throws PtxError or Unsupported for the first instruction that cannot be executed, std::invalid_argument if the
  // module has no such entry. An empty name takes the only entry.
  Kernel(std::string_view source, const std::string& entry);
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;

  const std::string& name() const override { return name_; }
  const std::string& target() const { return target_; }  // of the module
  unsigned warp_size() const override { return kLanes; }
  std::uint64_t shared_base() const override { return 1024; }  // the first KB is the system's on sm_90
  std::size_t static_shared_memory() const override { return static_shared_; }
  bool orders_global_memory() const override { return true; }
  std::size_t local_memory() const override { return local_bytes_; }
  unsigned registers_a_thread() const override { return registers_a_thread_; }
  std::unique_ptr<WarpProgram> make_warp(ThreadBlock& block, unsigned index, unsigned lanes) const override;

  // Throws std::invalid_argument if the kernel demands another number of threads.
  void check_block(const std::array<unsigned, 3>& block) const;
  // Bytes of the parameters, in order.
  const std::vector<Parameter>& parameters() const { return parameters_; }
  void set_parameters(const std::vector<unsigned char>& bytes);

  struct Bytes {
    const unsigned char* start = nullptr;
    std::size_t count = 0;
    const unsigned char* data() const { return start; }
  };
  const Bytes& parameter_bytes() const { return parameter_bytes_; }
  const std::vector<Instruction>& instructions() const { return instructions_; }
  std::uint32_t end() const { return end_; }  // past its own last instruction; functions follow
  const std::vector<CallSite>& call_sites() const { return call_sites_; }
  const std::vector<unsigned char>& constants() const { return constants_; }
  std::size_t register_bytes() const { return register_bytes_; }
  const std::vector<Register>& registers() const { return registers_; }
  bool uses_wgmma() const { return uses_wgmma_; }
  // Of shared variables, in block 0 of a cluster. After the special registers each has a row of 32-bit and one of 64-bit
  // values, with the rank of the warp's own block.
  const std::vector<std::uint64_t>& shared_addresses() const { return shared_addresses_; }
  std::size_t local_bytes() const { return local_bytes_; }  // of each thread
  // Global and constant variables of the module, to be given to the launch as memory.
  const std::vector<Allocation>& variables() const { return variables_; }
  int line_of(std::uint32_t pc) const override { return pc < instructions_.size() ? instructions_[pc].line : 0; }
  std::string text_of(std::uint32_t pc) const override;
  SourcePlace source_of(std::uint32_t pc) const override;
  std::shared_ptr<const std::string> program_text() const override { return text_; }
  // What a launch may say of clusters, and has when it says nothing. Throws std::invalid_argument.
  void check_cluster(LaunchShape& shape) const;

 private:
  friend class Preparation;
  std::shared_ptr<const std::string> text_;
  mutable std::once_flag has_sources_;
  mutable std::unique_ptr<const SourceLines> sources_;  // made for the first fault
  std::string name_;
  std::string target_;
  std::vector<Parameter> parameters_;
  std::vector<unsigned char> parameter_memory_;
  Bytes parameter_bytes_;  // in it
  std::array<unsigned, 3> required_threads_{};
  unsigned max_threads_ = 0;
  std::size_t static_shared_ = 0;
  unsigned registers_a_thread_ = 0;
  std::vector<Register> registers_;
  std::size_t register_bytes_ = 0;
  std::vector<unsigned char> constants_;
  std::vector<Instruction> instructions_;
  std::vector<std::string_view> written_;  // each of them, in the text
  std::uint32_t end_ = 0;
  std::vector<CallSite> call_sites_;
  bool uses_wgmma_ = false;
  std::vector<std::uint64_t> shared_addresses_;
  std::size_t local_bytes_ = 0;
  std::vector<std::unique_ptr<unsigned char[]>> variable_bytes_;
  std::vector<Allocation> variables_;
  std::array<unsigned, 3> required_cluster_{};
  unsigned most_cluster_blocks_ = 0;
  bool explicit_cluster_ = false;
};

}  // namespace msa_ops::emulator::ptx

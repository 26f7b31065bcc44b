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
#include "prepared.hpp"
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
  std::size_t static_shared_memory() const override { return prepared_.static_shared; }
  bool orders_global_memory() const override { return true; }
  std::size_t local_memory() const override { return prepared_.local_bytes; }
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
  const std::vector<Instruction>& instructions() const { return prepared_.instructions; }
  std::uint32_t end() const { return prepared_.end; }  // past its own last instruction; functions follow
  const std::vector<CallSite>& call_sites() const { return prepared_.call_sites; }
  const std::vector<unsigned char>& constants() const { return prepared_.constants; }
  std::size_t register_bytes() const { return prepared_.register_bytes; }
  const std::vector<Register>& registers() const { return prepared_.registers; }
  bool uses_wgmma() const { return prepared_.uses_wgmma; }
  // Of shared variables, in block 0 of a cluster. After the special registers each has a row of 32-bit and one of 64-bit
  // values, with the rank of the warp's own block.
  const std::vector<std::uint64_t>& shared_addresses() const { return prepared_.shared_addresses; }
  std::size_t local_bytes() const { return prepared_.local_bytes; }  // of each thread
  // The address of a constant variable, of which the lower 32 bits may be given alone.
  std::uint64_t constant_address(std::uint64_t address) const {
    return address >> 32 == 0 ? address | prepared_.constant_window : address;
  }
  // Global and constant variables of the module, to be given to the launch as memory.
  const std::vector<Allocation>& variables() const { return prepared_.variables; }
  int line_of(std::uint32_t pc) const override { return pc < instructions().size() ? instructions()[pc].line : 0; }
  std::string text_of(std::uint32_t pc) const override;
  SourcePlace source_of(std::uint32_t pc) const override;
  std::shared_ptr<const std::string> program_text() const override { return text_; }
  // What a launch may say of clusters, and has when it says nothing. Throws std::invalid_argument.
  void check_cluster(LaunchShape& shape) const;

 private:
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
  unsigned registers_a_thread_ = 0;
  Prepared prepared_;
  std::array<unsigned, 3> required_cluster_{};
  unsigned most_cluster_blocks_ = 0;
  bool explicit_cluster_ = false;
};

}  // namespace msa_ops::emulator::ptx

// A warp that executes a PTX kernel: registers, the stack of lanes that went apart, and the step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "../device/thread_block.hpp"
#include "../matrix/product.hpp"
#include "in_flight.hpp"
#include "instruction.hpp"
#include "kernel.hpp"

namespace msa_ops::emulator::ptx {

class PtxWarp : public WarpProgram {
 public:
  PtxWarp(const Kernel& kernel, ThreadBlock& block, unsigned index, unsigned lanes);

  void start() override;
  State run(std::uint64_t instructions, std::uint64_t& executed) override;
  Place place() const override;
  void add_to(Counters& counters) const override;

  // ---- for handlers
  // Values of an operand, one a lane; the type has the operand's width.
  template <typename T>
  const T* row(const Operand& operand) const {
    return reinterpret_cast<const T*>(base_[static_cast<std::size_t>(operand.space)] + operand.offset);
  }
  template <typename T>
  T* out(const Operand& operand) {
    return reinterpret_cast<T*>(file_.data() + operand.offset);
  }
  // Value of one lane, whatever the operand's width, extended with zeros.
  std::uint64_t value(const Operand& operand, unsigned lane) const;
  void set_value(const Operand& operand, unsigned lane, std::uint64_t value);
  Mask predicate(const Operand& operand) const {
    const Mask mask = *row<Mask>(operand);
    return operand.negated ? ~mask : mask;
  }
  void set_predicate(const Operand& operand, Mask value, Mask lanes) {
    Mask& mask = *out<Mask>(operand);
    mask = (mask & ~lanes) | (value & lanes);
  }
  // The first destination of the present instruction has no defined value in these lanes.
  void leave_undefined(Mask lanes) { undefined_ = lanes; }

  ThreadBlock& block() { return block_; }
  const Kernel& kernel() const { return kernel_; }
  unsigned index() const { return index_; }
  Mask live() const { return live_; }
  void count_read(std::uint64_t bytes) { global_read_ += bytes; }
  void count_written(std::uint64_t bytes) { global_written_ += bytes; }

  // Order in which a matrix instruction adds k products; nullptr: ascending.
  const std::uint32_t* matrix_order(std::size_t k) { return matrix_order_.next(k); }

  // Registers that asynchronous instructions hold, for handlers of operands `~`, which nobody else checks.
  RegistersInFlight& in_flight() { return in_flight_; }
  WgmmaState& wgmma() { return wgmma_; }
  const WgmmaState& wgmma() const { return wgmma_; }
  Mask defined(std::uint32_t index) const { return defined_[index]; }
  void define(std::uint32_t index) { defined_[index] = kAllLanes; }
  const std::string& name_of(std::uint32_t index) const { return kernel_.registers()[index].name; }

  void branch(const Instruction& instruction, Mask taken);
  void leave(Mask lanes);         // these lanes have ended
  void wait() { waiting_ = true; }  // the turn ends after this instruction

 private:
  // Lanes that are together. Those of one entry wait for those of the entries above it, unless they meet again
  // nowhere: paths whose reconvergence is the end of the kernel are independent of each other.
  struct Path {
    std::uint32_t next;
    std::uint32_t reconvergence;
    Mask lanes;
  };
  void step(const Instruction& instruction);
  bool let_others_go_first();
  void check_in_flight(const Instruction& instruction) const;
  [[noreturn]] void report_uninitialized(const Instruction& instruction, Mask lanes) const;

  const Kernel& kernel_;
  ThreadBlock& block_;
  const unsigned index_;
  const Mask initial_lanes_;
  std::vector<unsigned char> file_;      // registers
  std::vector<unsigned char> special_;   // special registers
  const unsigned char* base_[3];         // by Operand::Space
  std::vector<Mask> defined_;            // lanes that have written each register
  std::vector<Path> paths_;
  std::vector<std::uint64_t> counts_;    // by instruction
  std::uint32_t at_ = 0;                 // the present instruction, or the last one
  Mask live_ = 0;
  Mask undefined_ = 0;
  bool waiting_ = false;
  matrix::Order matrix_order_;
  RegistersInFlight in_flight_;
  WgmmaState wgmma_;
  std::size_t parked_ = 0;               // paths in a row that could not go on
  std::uint64_t global_read_ = 0;
  std::uint64_t global_written_ = 0;
};

}  // namespace msa_ops::emulator::ptx

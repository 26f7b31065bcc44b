// A wave of 64 lanes: its registers, what is known about them, what it waits for, and the step.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "../device/thread_block.hpp"
#include "instruction.hpp"
#include "kernel.hpp"

namespace msa_ops::emulator::gfx950 {

using Row = std::uint32_t[kLanes];

// Calls function(lane) for each lane of the mask.
template <typename Function>
inline void for_lanes(Mask lanes, Function function) {
  if (lanes == kAllLanes) {
    for (unsigned lane = 0; lane < kLanes; ++lane) function(lane);
  } else {
    for (; lanes != 0; lanes &= lanes - 1) function(static_cast<unsigned>(__builtin_ctzll(lanes)));
  }
}

inline void write_row(std::uint32_t* to, const std::uint32_t* from, Mask lanes) {
  if (lanes == kAllLanes) std::memcpy(to, from, sizeof(Row));
  else for_lanes(lanes, [&](unsigned lane) { to[lane] = from[lane]; });
}

inline int lowest(Mask lanes) { return __builtin_ctzll(lanes); }

// For messages.
std::string name_of_row(unsigned index);
std::string name_of_scalar(unsigned index);

class Wave : public WarpProgram, private LdsReader {
 public:
  Wave(const Kernel& kernel, ThreadBlock& block, std::shared_ptr<Workgroup> workgroup, unsigned index, unsigned lanes);

  void start() override;
  State run(std::uint64_t instructions, std::uint64_t& executed) override;
  Place place() const override;
  void add_to(Counters& counters) const override;

  // ---- registers
  std::uint32_t* row(unsigned index) { return &vector_[index * kLanes]; }
  const std::uint32_t* row(unsigned index) const { return &vector_[index * kLanes]; }
  std::uint32_t& sgpr(unsigned index) { return scalar_[index]; }
  std::uint32_t sgpr(unsigned index) const { return scalar_[index]; }
  std::uint64_t sgpr64(unsigned index) const {
    return scalar_[index] | static_cast<std::uint64_t>(scalar_[index + 1]) << 32;
  }
  void set_sgpr64(unsigned index, std::uint64_t value) {
    scalar_[index] = static_cast<std::uint32_t>(value);
    scalar_[index + 1] = static_cast<std::uint32_t>(value >> 32);
  }
  Mask exec() const { return sgpr64(kExec); }
  bool scc() const { return scc_; }
  void set_scc(bool value) { scc_ = value; scc_known_ = true; }
  std::uint32_t value32(const Operand& operand) const;
  std::uint64_t value64(const Operand& operand) const;
  void set_value32(const Operand& operand, std::uint32_t value) { scalar_[operand.index] = value; }
  void set_value64(const Operand& operand, std::uint64_t value) { set_sgpr64(operand.index, value); }

  // Lanes in which all dwords of the range have a value.
  Mask defined(const Range& range) const;
  void define(unsigned index, Mask lanes) {
    ready_[index] |= lanes;
  }
  void undefine(unsigned index, Mask lanes);
  // Marks bytes (a bit each) of a register; all four make it defined.
  void define_bytes(unsigned index, unsigned byte_mask, Mask lanes);
  [[noreturn]] void report_undefined(unsigned index, Mask lanes) const;
  // The register gets no value in these lanes, because of what `from` lacks (or by the present instruction).
  void undefine_from(unsigned index, Mask lanes, unsigned from);
  bool is_pending(unsigned index, Mask lanes) const { return (pending_[index] & lanes) != 0; }
  // The lanes without a value, but for those whose load nobody has waited for if that is accepted here.
  Mask without_accepted(unsigned index, Mask missing) const {
    const bool passes = (missing & pending_[index]) != 0 && accepts(FaultKind::kMissingWait);
    return passes ? missing & ~pending_[index] : missing;
  }
  bool accepts(FaultKind kind) const { return kernel_.accepted().has(kind, present().address); }
  void check_scalars(const Instruction& instruction);
  void require_scalar(unsigned index) const;
  bool bytes_defined(unsigned index, unsigned byte_mask, Mask lanes) const;

  // ---- memory operations that have been issued and not waited for
  struct Outstanding {
    enum class Kind : std::uint8_t { kLoad, kStore, kLdsRead, kLdsWrite, kLoadToLds, kControl } kind = Kind::kLoad;
    bool in_flight = false;      // the LDS knows of it: a barrier has been passed
    std::uint32_t instruction = 0;
    Range registers;
    Mask lanes = 0;
    Mask undefined = 0;          // lanes that read bytes of the LDS which nothing has written, or in a race
    Mask raced = 0;              // those of the latter
    std::uint32_t followed = 0;  // which of followed_, from 1 on
    bool outside = false;        // or which are not the workgroup's
    std::array<Mask, 4> unseen{};        // lanes whose dword is not what memory holds (Coherence)
    bool any_unseen = false;
    std::uint64_t store = 0;             // Coherence's number of it
    std::uint32_t lds_bytes = 0;         // of a lane's access
    std::uint32_t lds_bytes_b = 0;       // of a second one, if there are two
    Row lds_address;                     // of the lanes
    Row lds_address_b;

    // For another operation; addresses and unseen lanes stay what they are until they are set.
    void renew(Kind next, std::uint32_t at) {
      kind = next;
      in_flight = outside = any_unseen = false;
      instruction = at;
      registers = {};
      lanes = undefined = raced = 0;
      followed = 0;
      store = 0;
      lds_bytes = lds_bytes_b = 0;
    }
  };
  // A slot for an operation of vector memory or of the LDS; waits for the oldest if the counter is at its end.
  Outstanding& issue_vector(Outstanding::Kind kind);
  Outstanding& issue_lds(Outstanding::Kind kind);
  void issue_scalar(const Range& registers);
  // Registers that the operation will write.
  void await(Outstanding& operation, const Range& registers, Mask lanes);
  void wait_vector(unsigned count);
  void wait_scalar_and_lds(unsigned count);
  bool lds_outstanding() const { return lds_count_ > 0; }

  // ---- for handlers
  ThreadBlock& block() { return block_; }
  const ThreadBlock& block() const { return block_; }
  Lds& lds() { return workgroup_->lds; }
  Coherence& coherence() const { return kernel_.coherence(); }
  Coherence::Group* group() const { return workgroup_->group; }
  Coherence::Access begin_access(bool atomic = false) const;
  // All lanes of a store or an atomic operation are done.
  void finish_access(Coherence::Access& access, Outstanding& operation);
  // The loaded dwords of these lanes must not be used.
  void note_unseen(Outstanding& operation, const std::array<Mask, 4>& lanes, const Coherence::Unseen& why);
  // Some lanes of the present read of the LDS have found what no order gave them.
  void note_race(const Violation& fault) { races_.insert_or_assign(at_, fault); }
  // What the read of the LDS brings is followed to its first use, until the next barrier.
  void follow(Outstanding& operation);
  // Asking for something that others do: they should go on.
  // `found`: a digest of where the wave looked and what it found. Violation if all waves of all devices find nothing
  // new any more.
  void note_polling(std::uint64_t found);
  // Memory has changed.
  void note_change() { coherence().progress().changed(); }
  const Kernel& kernel() const { return kernel_; }
  const Instruction& present() const { return kernel_.instructions()[at_]; }
  unsigned index() const { return index_; }
  std::uint32_t epoch() const { return epoch_; }
  bool flushes_denormals() const { return flush_; }
  bool ieee_mode() const { return ieee_; }
  bool dx10_clamp() const { return dx10_clamp_; }
  std::uint32_t mode() const { return mode_; }
  void set_mode(std::uint32_t mode);
  void jump(std::uint32_t index) { next_ = index; }
  std::uint32_t next() const { return next_; }
  void barrier();
  void end();
  void yield() { yield_ = true; }
  // An operation of global memory, by the bytes of its lanes: one after the other, then the end.
  void count_sectors(std::uint64_t address, unsigned bytes);
  void end_request();
  // What s_waitcnt waits for.
  void count_wait(unsigned vector, unsigned lds) {
    if (vector_count_ > vector) ++vector_waits_;
    if (lds_count_ + scalar_loads_.size() > lds) ++lds_waits_;
  }
  // Bytes of the LDS and of scratch memory, each lane's.
  enum class Space : std::uint8_t { kLds, kScratch };
  void count_space(Space space, bool write, Mask lanes, unsigned bytes) {
    space_bytes_[static_cast<unsigned>(space)][write ? 1 : 0] +=
        static_cast<std::uint64_t>(__builtin_popcountll(lanes)) * bytes;
  }
  void count_read(std::uint64_t bytes) { global_read_ += bytes; }
  void count_written(std::uint64_t bytes) { global_written_ += bytes; }
  std::byte* scratch(unsigned lane, std::uint32_t offset, unsigned bytes, bool write);
  std::uint64_t clock() const { return clock_; }
  void stall(std::uint64_t states) { clock_ += states; }

  // Counts.
  std::uint64_t lds_cycles = 0, lds_conflict_cycles = 0, out_of_range_lanes = 0;

 private:
  static constexpr unsigned kRows = 512;
  static constexpr unsigned kVectorCounter = 63, kLdsCounter = 15;  // most that vmcnt and lgkmcnt count
  friend void execute_vector(Wave&, const Instruction&);
  // Where a value that is missing went missing: a register that nothing wrote, or a read of the LDS.
  struct Origin {
    std::uint32_t instruction = 0;
    std::uint16_t row = 0;
    enum class Kind : std::uint8_t { kUnknown, kRegister, kLds, kOutside, kUnseen, kRace } kind = Kind::kUnknown;
  };
  // What wait states are counted from, in the clock of issued instructions.
  struct Issued {
    std::uint64_t matrix = 0;          // last matrix instruction that wrote the row
    std::uint64_t valu = 0;            // last other vector instruction
    std::uint16_t first = 0;           // of the matrix instruction's result
    std::uint8_t matrix_use = 0;       // wait states before its result may be used
    std::uint8_t matrix_accumulate = 0;  // before it may be a part of an accumulator
    std::uint8_t handed_on = 0;          // before it may be the accumulator
    std::uint8_t count = 0;              // registers of the matrix instruction's result
    std::uint8_t matrix_memory = 0;      // wait states before it may be stored or be an address
    bool transcendental = false;
  };
  // The same of what few instructions do.
  struct Rare {
    const Form* dot = nullptr;           // the dot product that wrote the row
    std::uint64_t dot_at = 0;
    std::uint64_t placed = 0;            // written in part, by op_sel or SDWA
    std::uint64_t stored = 0;            // a part of a wide store
    std::uint64_t addend = 0;            // a part of the C of a matrix instruction
    std::uint8_t addend_states = 0;
  };
  // A read of the LDS since the last barrier.
  struct FollowedRead {
    std::uint32_t instruction;
    Range registers;
    Mask lanes;
    Mask used;
    std::uint32_t bytes, bytes_b;
    Row address, address_b;
  };
  bool forget_read(std::uint32_t address, unsigned byte_mask, const Violation& fault) override;
  void use(unsigned index, Mask lanes) const;  // of what is followed
  void stop_following();
  [[noreturn]] void report_deadlock(const std::vector<const Wave*>& waves) const;
  void step(const Instruction& instruction);
  // Lanes of sources without a value, for instructions that hand on what is missing; Violation for the others.
  Mask check_reads(const Instruction& instruction);
  std::uint64_t lacking(const Operand& operand) const;  // bits of a scalar operand without a value
  // Whether the instruction does with the bits that are there, or hands the lack on (result_lacking_).
  bool hands_on_bits(const Instruction& instruction);
  void note_lacking_bits(const Instruction& instruction);
  void check_wait_states(const Instruction& instruction);
  void check_matrix_results(const Instruction& instruction, bool is_matrix, bool is_valu);
  void check_rare(const Instruction& instruction);
  void check_hardware_register(const Instruction& instruction);
  void note_issue(const Instruction& instruction);
  void note_rare(const Instruction& instruction, bool is_matrix);
  void note_store(const Instruction& instruction);
  void check_writes(const Instruction& instruction);
  void complete(Outstanding& operation);
  bool still_awaited(unsigned index, Mask& lanes) const;

  const Kernel& kernel_;
  ThreadBlock& block_;
  const std::shared_ptr<Workgroup> workgroup_;
  const unsigned index_;
  const unsigned initial_lanes_;

  std::vector<std::uint32_t> vector_storage_;
  std::uint32_t* vector_ = nullptr;                // 512 rows, aligned
  mutable std::vector<Mask> ready_;                // lanes with a value that may be read
  mutable std::vector<Mask> unused_;               // or that may be read and has not been, of a read in followed_
  std::vector<std::uint32_t> follows_;             // which one, from 1 on
  mutable std::vector<FollowedRead> followed_;
  bool followed_all_ = true;                       // since the last barrier
  std::vector<Mask> pending_;                      // lanes that an operation in flight will write
  std::vector<std::array<Mask, 4>> bytes_;         // of registers that are written in parts
  std::vector<Origin> origins_;
  std::vector<Issued> issued_;
  std::array<std::uint64_t, 128> scalar_issued_{}; // last vector instruction that wrote the scalar register
  std::vector<Rare> rare_;
  std::uint64_t matrix_free_ = 0, matrix_horizon_ = 0, rare_horizon_ = 0;
  std::uint64_t lanes_masked_ = 0;          // by a vector instruction that wrote exec
  std::uint64_t fp64_product_ = 0, hardware_register_at_ = 0;
  unsigned hardware_register_ = 0;
  Mask missing_high_ = 0;                          // lanes that lack the upper half of a summand alone
  unsigned missing_from_ = 0;                      // a row that check_reads found without a value
  mutable std::int64_t blamed_ = -1;               // instruction at fault, if it is not the present one
  alignas(16) std::array<std::uint32_t, 128> scalar_{};
  std::array<std::uint8_t, 128> scalar_state_{};   // 0 no value, 1 ready, 2 in flight, 3 some bits have no value
  std::array<std::uint32_t, 128> scalar_lacking_{};  // which
  std::uint64_t result_lacking_ = 0;                 // of the present instruction's result
  bool scc_ = false, scc_known_ = false;
  bool flush_ = false, ieee_ = true, dx10_clamp_ = true;
  std::uint32_t mode_ = 0;

  std::vector<Outstanding> vector_queue_, lds_queue_;  // rings
  unsigned vector_head_ = 0, vector_count_ = 0, lds_head_ = 0, lds_count_ = 0;
  std::vector<Range> scalar_loads_;
  std::uint32_t awaited_ = 0;  // operations in flight that will write vector registers

  std::vector<std::byte> scratch_;
  std::vector<std::uint8_t> scratch_written_;

  std::vector<std::uint64_t> counts_;  // by instruction
  std::uint32_t at_ = 0, next_ = 0;
  std::uint32_t epoch_ = 0;
  std::uint64_t clock_ = 0;
  bool waiting_ = false, done_ = false, yield_ = false;
  unsigned held_ = 0;                              // turns that it gives to others
  std::map<std::uint32_t, std::uint64_t> found_;   // by the instruction that looks
  std::uint64_t idle_epoch_ = 0;                   // of Progress, in which it found nothing new
  bool at_barrier_ = false;
  std::uint32_t polled_at_ = ~0U;                  // last load that goes past the caches
  std::map<std::uint32_t, Coherence::Unseen> unseen_;  // by the load
  std::map<std::uint32_t, Violation> races_;           // by the read of the LDS
  std::uint64_t global_read_ = 0, global_written_ = 0;
  std::uint64_t global_requests_ = 0, global_sectors_ = 0, barrier_waits_ = 0, vector_waits_ = 0, lds_waits_ = 0;
  std::array<std::array<std::uint64_t, 2>, 2> space_bytes_{};
  std::vector<std::uint64_t> sectors_;  // of the present operation, and the last of them
  std::uint64_t last_sector_ = 0;
};

}  // namespace msa_ops::emulator::gfx950

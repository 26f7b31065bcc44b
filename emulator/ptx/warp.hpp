// A warp that executes a PTX kernel: registers, the stack of lanes that went apart, and the step.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "../device/async.hpp"
#include "../device/cluster.hpp"
#include "../device/lazy_bytes.hpp"
#include "../device/thread_block.hpp"
#include "../matrix/kinds.hpp"
#include "../matrix/product.hpp"
#include "in_flight.hpp"
#include "copies.hpp"
#include "instruction.hpp"
#include "kernel.hpp"
#include "loop_watch.hpp"
#include "stack.hpp"

namespace msa_ops::emulator::ptx {

class PtxWarp : public WarpProgram {
 public:
  PtxWarp(const Kernel& kernel, ThreadBlock& block, unsigned index, unsigned lanes);

  void start() override;
  State run(std::uint64_t instructions, std::uint64_t& executed) override;
  Place place() const override { return place(at_); }
  Place place(std::uint32_t pc) const;
  const std::uint32_t* pc() const override { return &at_; }
  void add_to(Counters& counters) const override;
  Rest rest(const Changes& now) const override { return loop_.rest(now); }
  std::string describe_loop(const Changes& now) const override;
  Place place_of_loop(const Changes& now) const override;
  void note_time_out() override { loop_.expect(); }
  std::string describe_poll() const override;
  bool release_lanes(std::uint64_t last) override;

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
  Stack& stack() { return stack_; }
  // Bytes of a lane's local memory; Violation as for shared memory.
  std::byte* local(std::uint64_t address, std::size_t bytes, bool write, int lane);
  void refresh_clock();  // the special registers that count time
  // Lanes of a register of the present instruction that have no value. For forms whose handler asks.
  Mask undefined(const Operand& operand) const {
    return operand.present && operand.space == Operand::Space::kRegisters ? ~defined_[operand.index] : 0;
  }
  bool any_undefined() const { return missing_ != 0; }  // in a source of the present instruction
  void want_defined(const Operand& operand, Mask lanes) const {
    if ((undefined(operand) & lanes) != 0) report_uninitialized(operand.index, lanes);
  }
  // Reads of global memory that count if these lanes store what came of them (dropped_reads.hpp).
  void read_late(std::uint64_t address, std::size_t bytes, int lane);
  void end_late_reads(Mask lanes, const std::vector<std::uint32_t>* reads = nullptr);  // null: all
  void drop_late_reads(Mask lanes);
  // A destination of the present instruction has no value in these lanes, because its sources have none, or because
  // memory that nothing has written was read.
  enum class Lack : std::uint8_t { kRegister, kShared, kTensor };
  void leave_undefined(const Operand& destination, Mask lanes, Lack lack = Lack::kRegister, std::uint64_t address = 0) {
    if (lanes != 0) results_.push_back({destination.index, lanes, lack, address});
  }

  // Of a register of two parts, which the present instruction packs or copies in these lanes: those in which each part
  // has no value. Taking it apart asks for them; after any other instruction they are those of the whole register.
  void note_halves(const Operand& whole, Mask low, Mask high, Mask lanes) {
    std::array<Mask, 2> known{kAllLanes, kAllLanes};
    if (const auto found = halves_.find(whole.index); found != halves_.end()) known = found->second.lanes;
    halves_[whole.index] = {at_, whole.width / 2U, {(known[0] & ~lanes) | (low & lanes), (known[1] & ~lanes) | (high & lanes)}};
  }
  Mask undefined_half(const Operand& whole, unsigned part) const {
    const auto found = halves_.find(whole.index);
    return undefined(whole) & (found != halves_.end() ? found->second.lanes[part] : kAllLanes);
  }
  // The same for the lowest bytes, whatever the width of the register.
  Mask undefined_low(const Operand& whole, std::size_t bytes) const {
    const auto found = halves_.find(whole.index);
    return undefined(whole) & (found != halves_.end() && bytes <= found->second.bytes ? found->second.lanes[0] : kAllLanes);
  }

  // The condition code of extended-precision arithmetic, a bit a lane.
  Mask carry() const { return carry_; }
  void set_carry(Mask carry) { carry_ = carry; }

  void note_change() { block_.cluster().note_change(); }  // what warps share is not what it was

  ThreadBlock& block() { return block_; }
  const Kernel& kernel() const { return kernel_; }
  unsigned index() const { return index_; }
  Mask live() const { return live_; }
  void count_read(std::uint64_t bytes) { global_read_ += bytes; }
  void count_written(std::uint64_t bytes) { global_written_ += bytes; }
  // Memory beside global memory: shared memory of the block, of other blocks, local and tensor memory.
  enum class Space : std::uint8_t { kShared, kCluster, kLocal, kTensor };
  void count_bytes(Space space, bool write, std::uint64_t bytes) {
    space_bytes_[2 * static_cast<unsigned>(space) + (write ? 1 : 0)] += bytes;
  }
  void count_bytes(const ThreadBlock& holder, bool write, std::uint64_t bytes) {
    count_bytes(&holder == &block_ ? Space::kShared : Space::kCluster, write, bytes);
  }
  // One load or store of global or shared memory, with the lanes' addresses.
  void count_global_request(const std::uint64_t* addresses, Mask lanes);
  void count_shared_request(const std::uint64_t* addresses, std::size_t bytes, Mask lanes);

  // Order in which a matrix instruction adds k products; nullptr: ascending.
  const std::uint32_t* matrix_order(std::size_t k) { return matrix_order_.next(k); }
  void count_flops(matrix::Kind kind, std::uint64_t flops) { flops_[static_cast<std::size_t>(kind)] += flops; }

  // Registers that asynchronous instructions hold, for handlers of operands `~`, which nobody else checks.
  RegistersInFlight& in_flight() { return in_flight_; }
  WgmmaState& wgmma() { return wgmma_; }
  const WgmmaState& wgmma() const { return wgmma_; }
  TensorWork& tensor_work() { return tensor_work_; }
  Mask defined(std::uint32_t index) const { return defined_[index]; }
  void define(std::uint32_t index) { defined_[index] = kAllLanes; }
  const std::string& name_of(std::uint32_t index) const { return kernel_.registers()[index].name; }

  void branch(const Instruction& instruction, Mask taken);
  void branch_by_index(const Instruction& instruction, Mask lanes);
  void leave(Mask lanes);         // these lanes have ended
  void call(const Instruction& instruction, Mask lanes);
  void return_from(Mask lanes);   // the function that they are in, or end the kernel
  // Copies arguments or results of a call; what has no value hands that on.
  void copy(const std::vector<CallCopy>& copies, Mask lanes);
  void wait() { waiting_ = true, ++waits_; }  // the turn ends after this instruction
  // The present instruction has had no effect and is executed again: when the phase of the mbarrier or the barrier of
  // the cluster is complete, or when everything else of the warp has had its chance.
  void wait_for(const Mbarrier& barrier) {
    again_ = true;
    awaited_ = &barrier;
    ++waits_;
  }
  // Whether the present wait at an mbarrier fails by chance: some do with a seed, of a warp never many in a row.
  bool wait_fails() {
    if (failed_waits_ < kMostFailedWaits && block_.cluster().draws_failure()) return ++failed_waits_, true;
    failed_waits_ = 0;
    return false;
  }
  void wait_for_cluster() { again_ = true; }
  void wait_for_registers(unsigned count) {
    again_ = true;
    awaited_registers_ = count;
  }
  void wait_for_tensor_memory(unsigned columns, unsigned blocks) {  // of each block of the group
    again_ = polls_ = true;
    wanted_columns_ = {columns, blocks};
  }
  // The instruction is executed again when the barrier at which the warp has voted is complete.
  bool has_voted() const { return has_voted_; }
  void wait_for_votes() { again_ = has_voted_ = true; }
  void take_votes() { has_voted_ = false; }
  // The lanes of a warp that come to a barrier from several places, and the first of them to have gone on.
  struct Meeting {
    Mask come = 0, passed = 0;
    std::uint32_t barrier = 0, warps = 0;
    bool waits = false;
    Mask votes = 0;
  };
  Meeting& meeting() { return meeting_; }
  void wait_for_lanes() { again_ = polls_ = true; }
  void give_way() { gives_way_ = true; }  // the turn ends; other lanes of the warp come first
  Ordering& ordering() { return block_.shared().ordering(); }
  Origin origin() const { return {&kernel_, at_, block_.index(), static_cast<int>(index_)}; }
  Copies& copies() { return copies_; }
  BulkGroups& bulk_groups() { return bulk_groups_; }
  unsigned actor_warp() const { return block_.actor_warp(index_); }

 private:
  struct Halves {
    std::uint32_t pc;  // of the instruction that packed them
    unsigned bytes;    // of each
    std::array<Mask, 2> lanes;
  };
  std::unordered_map<std::uint32_t, Halves> halves_;  // by register

  // Lanes that are together. A path that parted into others waits for them where they meet again, unless that is the
  // end of the kernel: then they are independent. All paths that wait for none can run.
  struct Path {
    std::uint32_t next;
    std::uint32_t reconvergence;
    Mask lanes;
    std::uint32_t id;
    std::uint32_t parent;        // id; 0: none
    std::uint32_t waits_for = 0; // paths
    std::uint32_t caller = 0;    // id of the path that called the function in which this one is; 0: the kernel
    const Call* call = nullptr;  // by which
    std::shared_ptr<const Stack::Tops> tops{};  // of the stacks at that call
    std::uint64_t since = 0;     // Cluster::elapsed when lanes last came to wait for others
  };
  Path& path_of(std::uint32_t id);
  bool is_within(const Call& call);
  void step(const Instruction& instruction);
  // The present path's lanes go on at different places, until `meet`.
  void part(const std::vector<std::pair<std::uint32_t, Mask>>& ways, std::uint32_t meet);
  bool let_others_go_first();
  void look_for_loop();
  LoopWatch::State state();
  Mask waiting_lanes(const Path& path) const;  // that have come where it waits for others
  std::string describe_wanted_columns() const;
  std::uint32_t read_in_loop() const;  // an instruction; the loop's last if it reads nothing
  void check_in_flight(const Instruction& instruction);
  void note_touched(const Instruction& instruction);  // for the rules of wgmma.fence
  void remove(std::size_t at);
  void pick();                  // a path that can run, the latest first
  bool next_path();             // another one that can run; false if there is none
  std::size_t runnable() const;
  [[noreturn]] void report_uninitialized(std::uint32_t index, Mask lanes) const;
  // Lanes in which the results have no value, for an instruction that hands this on. Throws for others.
  Mask spread(const Instruction& instruction, Mask lanes);
  void note_converted_halves(const Instruction& instruction, Mask lanes);
  void mark_undefined(std::uint32_t destination, Mask lanes, Lack lack, std::uint64_t address);

  const Kernel& kernel_;
  ThreadBlock& block_;
  const unsigned index_;
  const Mask initial_lanes_;
  std::vector<unsigned char> file_;      // registers
  std::vector<unsigned char> special_;   // special registers
  LazyBytes local_, local_written_;      // lane after lane
  bool uses_local_ = false;              // since the start
  Stack stack_;
  const unsigned char* base_[3];         // by Operand::Space
  std::vector<Mask> defined_;            // lanes that have written each register
  std::vector<Path> paths_;
  std::size_t now_ = 0;                  // of paths_
  std::uint32_t next_id_ = 1;
  std::vector<std::uint64_t> counts_;    // by instruction
  std::uint32_t at_ = 0;                 // the present instruction, or the last one
  Mask live_ = 0;
  Mask carry_ = 0;
  // Where a value that is missing came from.
  struct Blame {
    Mask lanes = 0;
    std::uint32_t pc = 0;
    std::uint32_t index = 0;        // the register that was read first
    Lack lack = Lack::kRegister;
    std::uint64_t address = 0;
  };
  struct LateRead {
    std::uint64_t address;
    std::size_t bytes;
    std::uint32_t pc;
    int lane;
  };
  std::vector<LateRead> late_reads_;
  struct Result {
    std::uint32_t index;
    Mask lanes;
    Lack lack;
    std::uint64_t address;
  };
  Mask missing_ = 0;
  Blame blame_;                          // of the sources of the present instruction
  std::vector<Blame> blames_;            // by register; empty while nothing is undefined
  std::vector<Result> results_;
  bool waiting_ = false;
  matrix::Order matrix_order_;
  std::array<std::uint64_t, matrix::kKinds> flops_{};
  RegistersInFlight in_flight_;
  WgmmaState wgmma_;
  TensorWork tensor_work_;
  bool again_ = false;
  bool polls_ = false;
  bool gives_way_ = false;
  bool has_voted_ = false;
  static constexpr unsigned kMostFailedWaits = 2;
  unsigned failed_waits_ = 0;            // by chance, since the last that was not
  const Mbarrier* awaited_ = nullptr;
  unsigned awaited_registers_ = 0;
  std::pair<unsigned, unsigned> wanted_columns_{};  // by the last tcgen05.alloc that found none, and of how many blocks
  Meeting meeting_;
  std::size_t parked_ = 0;               // paths in a row that could not go on
  unsigned turns_ = 0;                   // in a row that one path took while others could run
  Copies copies_;
  BulkGroups bulk_groups_;
  LoopWatch loop_;
  std::vector<std::uint32_t> control_;   // of state()
  std::uint64_t executed_ = 0;           // instructions of this turn
  std::uint64_t global_read_ = 0;
  std::uint64_t global_requests_ = 0, global_sectors_ = 0, shared_passes_ = 0, shared_passes_at_least_ = 0, waits_ = 0;
  std::uint64_t global_written_ = 0;
  std::array<std::uint64_t, 8> space_bytes_{};  // by Space: read, written
};

}  // namespace msa_ops::emulator::ptx

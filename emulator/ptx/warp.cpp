#include "warp.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include "error.hpp"
#include "lanes.hpp"
#include "special.hpp"

namespace msa_ops::emulator::ptx {
namespace {

constexpr unsigned kPatience = 8;  // turns of one path in a row while others could run

}  // namespace

PtxWarp::PtxWarp(const Kernel& kernel, ThreadBlock& block, unsigned index, unsigned lanes)
    : kernel_(kernel),
      block_(block),
      index_(index),
      initial_lanes_(lanes == kLanes ? kAllLanes : (Mask{1} << lanes) - 1),
      file_(kernel.register_bytes()),
      special_(special_bytes() + kernel.shared_addresses().size() * (4 + 8) * kLanes),
      local_(kernel.local_bytes() * kLanes),
      local_written_(local_.size()),
      base_{file_.data(), kernel.constants().data(), special_.data()},
      defined_(kernel.registers().size()),
      counts_(kernel.instructions().size()) {}

void PtxWarp::start() {
  std::fill(defined_.begin(), defined_.end(), 0);
  blames_.clear();
  halves_.clear();
  results_.clear();
  late_reads_.clear();
  in_flight_.reset(defined_.size());
  tensor_work_ = {};
  if (const auto seed = block_.cluster().sum_order()) {
    const auto& at = block_.index();
    matrix_order_ = matrix::Order((*seed + 1) * 0x9e3779b97f4a7c15U + at[0] + 8191 * (at[1] + 8191 * at[2]) + 131 * index_);
  }
  wgmma_.reset(kernel_.uses_wgmma() ? defined_.size() : 0);
  if (uses_local_) local_written_.clear();
  uses_local_ = false;
  stack_.reset();
  live_ = initial_lanes_;
  paths_.assign(1, {0, kernel_.end(), live_, 1, 0});
  now_ = 0;
  next_id_ = 2;
  at_ = 0;
  parked_ = 0;
  turns_ = 0;
  waiting_ = again_ = polls_ = gives_way_ = false;
  awaited_ = nullptr;
  failed_waits_ = 0;
  awaited_registers_ = 0;
  meeting_ = {};
  loop_.reset();
  copies_.reset();
  bulk_groups_.reset(actor_warp());
  const LaunchShape& shape = block_.shape();
  const auto& index = block_.index();
  const auto set = [&](Special which, std::uint32_t value) {
    auto* row = reinterpret_cast<std::uint32_t*>(special_.data() + offset_of(which));
    std::fill(row, row + kLanes, value);
  };
  for (unsigned i = 0; i < 3; ++i) {
    const auto at = [&](Special first) { return static_cast<Special>(static_cast<unsigned>(first) + i); };
    set(at(Special::kBlockSizeX), shape.block[i]);
    set(at(Special::kBlockX), index[i]);
    set(at(Special::kGridX), shape.grid[i]);
    set(at(Special::kClusterX), index[i] / shape.cluster[i]);
    set(at(Special::kClustersX), shape.grid[i] / shape.cluster[i]);
    set(at(Special::kBlockInClusterX), index[i] % shape.cluster[i]);
    set(at(Special::kClusterSizeX), shape.cluster[i]);
  }
  set(Special::kRankInCluster, block_.rank());
  set(Special::kBlocksOfCluster, shape.cluster_blocks());
  set(Special::kWarp, index_);
  set(Special::kWarps, block_.num_warps());
  const std::uint64_t number =
      index[0] + std::uint64_t{shape.grid[0]} * (index[1] + std::uint64_t{shape.grid[1]} * index[2]);
  const unsigned multiprocessors = block_.cluster().chip().multiprocessors;
  set(Special::kMultiprocessor, static_cast<std::uint32_t>(number % multiprocessors));
  set(Special::kMultiprocessors, multiprocessors);
  set(Special::kDynamicShared, static_cast<std::uint32_t>(shape.dynamic_shared_memory));
  const auto shared = static_cast<std::uint32_t>(block_.shared().size());
  set(Special::kTotalShared, shared);
  set(Special::kAggregateShared, shared * shape.cluster_blocks());
  set(Special::kReservedSharedEnd, static_cast<std::uint32_t>(kernel_.shared_base()));
  set(Special::kReservedSharedCap, static_cast<std::uint32_t>(kernel_.shared_base()));
  *reinterpret_cast<Mask*>(special_.data() + offset_of(Special::kExplicitCluster)) =
      shape.has_clusters ? kAllLanes : 0;
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    const unsigned thread = index_ * kLanes + lane;
    const Mask bit = Mask{1} << lane;
    const std::pair<Special, std::uint32_t> values[] = {
        {Special::kThreadX, thread % shape.block[0]},
        {Special::kThreadY, thread / shape.block[0] % shape.block[1]},
        {Special::kThreadZ, thread / shape.block[0] / shape.block[1]},
        {Special::kLane, lane},
        {Special::kMaskEqual, bit},
        {Special::kMaskLess, bit - 1},
        {Special::kMaskLessEqual, bit | (bit - 1)},
        {Special::kMaskGreater, ~(bit | (bit - 1))},
        {Special::kMaskGreaterEqual, ~(bit - 1)},
    };
    for (const auto& [which, value] : values) {
      reinterpret_cast<std::uint32_t*>(special_.data() + offset_of(which))[lane] = value;
    }
  }
  // Addresses of shared variables, which hold the rank of the block.
  const std::uint64_t rank = std::uint64_t{block_.rank()} << kernel_.rank_shift();
  auto* row = reinterpret_cast<std::uint64_t*>(special_.data() + special_bytes());
  for (const std::uint64_t address : kernel_.shared_addresses()) {
    for (unsigned lane = 0; lane < kLanes; ++lane) {
      reinterpret_cast<std::uint32_t*>(row)[lane] = static_cast<std::uint32_t>(address + rank);
      (row + kLanes / 2)[lane] = address + rank;
    }
    row += kLanes / 2 + kLanes;
  }
}

void PtxWarp::refresh_clock() {
  const std::uint64_t time = block_.cluster().executed() * 4 + executed_;
  auto* narrow = reinterpret_cast<std::uint32_t*>(special_.data() + offset_of(Special::kClock));
  auto* high = reinterpret_cast<std::uint32_t*>(special_.data() + offset_of(Special::kClockHigh));
  auto* wide = reinterpret_cast<std::uint64_t*>(special_.data() + offset_of(Special::kClock64));
  auto* timer = reinterpret_cast<std::uint64_t*>(special_.data() + offset_of(Special::kTimer));
  auto* low = reinterpret_cast<std::uint32_t*>(special_.data() + offset_of(Special::kTimerLow));
  auto* rest = reinterpret_cast<std::uint32_t*>(special_.data() + offset_of(Special::kTimerHigh));
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    low[lane] = narrow[lane] = static_cast<std::uint32_t>(time);
    rest[lane] = high[lane] = static_cast<std::uint32_t>(time >> 32);
    wide[lane] = time;
    timer[lane] = time;
  }
}

std::byte* PtxWarp::local(std::uint64_t address, std::size_t bytes, bool write, int lane) {
  const std::size_t all = kernel_.local_bytes();
  const auto what = [&] {
    return std::string(write ? "write" : "read") + " of " + std::to_string(bytes) + " bytes of local memory";
  };
  if (address % bytes != 0) throw Violation{FaultKind::kMisaligned, what(), lane, address};
  if (Stack::holds(address)) return stack_.access(static_cast<unsigned>(lane), address, bytes, write, what());
  if (bytes > all || address > all - bytes) {
    throw Violation{FaultKind::kOutOfBounds, what() + "; the thread has " + std::to_string(all), lane, address};
  }
  const std::size_t start = static_cast<std::size_t>(lane) * all + address;
  unsigned char* const written = local_written_.data() + start;
  if (write) {
    std::memset(written, 1, bytes);
    uses_local_ = true;
  } else if (std::find(written, written + bytes, 0) != written + bytes) {
    throw Violation{FaultKind::kUninitializedLocal, "read of a byte that the thread has not written", lane, address};
  }
  return reinterpret_cast<std::byte*>(local_.data() + start);
}

WarpProgram::State PtxWarp::run(std::uint64_t instructions, std::uint64_t& executed) {
  const std::vector<Instruction>& code = kernel_.instructions();
  std::size_t tries = 0;  // paths in a row that wait
  bool on_mbarriers = false;
  const auto end_turn = [&] { loop_.end_turn(executed, block_.global_uses()); };
  loop_.begin_turn(block_.cluster().own_changes(), block_.global_uses(), block_.cluster().has_lanes_apart());
  while (executed < instructions) {
    Path& path = paths_[now_];
    if (path.next >= code.size()) {
      leave(path.lanes);
    } else if (path.next == path.reconvergence) {
      remove(now_);  // the path that waits there continues with all its lanes
      pick();
    } else {
      at_ = path.next++;
      ++executed;
      executed_ = executed;
      try {
        step(code[at_]);
        ++counts_[at_];
        parked_ = 0;
      } catch (const Violation& violation) {
        if (violation.kind != FaultKind::kDivergence || !let_others_go_first()) {
          throw Fault(violation, place(violation.pc < 0 ? at_ : static_cast<std::uint32_t>(violation.pc)));
        }
      }
    }
    if (paths_.empty()) return State::kDone;
    if (again_) {
      again_ = false;
      if (!has_voted_) --executed;  // a vote is a step, and it may be the last one that others wait for
      --counts_[at_];
      paths_[now_].next = at_;
      const Mbarrier* awaited = awaited_;
      awaited_ = nullptr;
      on_mbarriers = on_mbarriers || awaited != nullptr;
      const unsigned registers = std::exchange(awaited_registers_, 0);
      if (has_voted_) {
        end_turn();
        return State::kWaiting;
      }
      const std::size_t others = runnable();
      if (awaited != nullptr && others > 1 && loop_.is_on()) {
        block_.time_out(index_);  // so that it is seen whether the lanes do something else then, as others of the warp run
        continue;
      }
      if (++tries < others && next_path()) continue;
      const bool polls = polls_;
      polls_ = false;
      if (others > 1 || polls) {
        next_path();
        block_.poll(index_, executed == 0);
        if (executed == 0 && !on_mbarriers) loop_.note_idle(block_.cluster().own_changes());
      } else if (awaited != nullptr) {
        block_.wait_for(index_, *awaited);
      } else if (registers != 0) {
        block_.wait_for_registers(index_, registers);
      } else {
        block_.wait_for_cluster(index_);
      }
      end_turn();
      return State::kWaiting;
    }
    if (gives_way_) {
      gives_way_ = false;
      next_path();
      end_turn();
      return State::kReady;
    }
    tries = 0;
    if (waiting_) {
      waiting_ = false;
      end_turn();
      return State::kWaiting;
    }
    if (loop_.is_on() && paths_[now_].next <= at_) look_for_loop();
  }
  // Lanes may wait in a loop for others of their warp.
  if (paths_.size() > 1 && ++turns_ >= kPatience) {
    turns_ = 0;
    next_path();
  }
  end_turn();
  return State::kReady;
}

void PtxWarp::step(const Instruction& instruction) {
  Mask lanes = paths_[now_].lanes;
  if (instruction.guard.present) {
    if ((lanes & ~defined_[instruction.guard.index]) != 0) report_uninitialized(instruction.guard.index, lanes);
    lanes &= predicate(instruction.guard);
    if (lanes == 0) return;
  }
  Mask all = kAllLanes;
  for (const std::uint32_t source : instruction.sources) all &= defined_[source];
  missing_ = lanes & ~all;
  const Mask undefined = missing_ != 0 ? spread(instruction, lanes) : 0;
  if (in_flight_.any()) check_in_flight(instruction);
  if (kernel_.uses_wgmma()) note_touched(instruction);
  if (instruction.drops_late) drop_late_reads(lanes);
  instruction.handler(*this, instruction, lanes);
  if (instruction.changes && !again_) note_change();
  if (SameValues& stored = ordering().same_values(); !stored.empty()) stored.settle();
  block_.cluster().watch().settle();
  for (const std::uint32_t destination : instruction.destinations) defined_[destination] |= lanes;
  if (undefined != 0) {
    for (const std::uint32_t destination : instruction.destinations) mark_undefined(destination, undefined, Lack::kRegister, 0);
  }
  if (!results_.empty()) {
    for (const Result& result : results_) mark_undefined(result.index, result.lanes, result.lack, result.address);
    results_.clear();
  }
}

void PtxWarp::note_touched(const Instruction& instruction) {
  if (instruction.moves && (instruction.sources.empty() || wgmma_.is_constant(instruction.sources[0]))) {
    return wgmma_.give_constant(instruction.destinations[0]);
  }
  for (const std::uint32_t source : instruction.sources) wgmma_.touch(source);
  for (const std::uint32_t destination : instruction.destinations) {
    wgmma_.touch(destination);
    wgmma_.give_other(destination);
  }
}

Mask PtxWarp::spread(const Instruction& instruction, Mask lanes) {
  const Form& form = *instruction.form;
  for (const std::uint32_t source : instruction.sources) {
    const Mask here = lanes & ~defined_[source];
    if (here == 0) continue;
    if (form.undefined == Form::Undefined::kRefused) report_uninitialized(source, lanes);
    blame_ = {here, at_, source, Lack::kRegister, 0};
    if (!blames_.empty() && (blames_[source].lanes & here) != 0) blame_ = blames_[source];
    break;
  }
  if (form.undefined == Form::Undefined::kHandled) return 0;
  // Where only one of two values counts, the other one may be missing.
  const auto& operands = instruction.operands;
  const std::string_view name = form.opcode;
  if (name.substr(0, 5) == "selp.") {
    const Mask chosen = predicate(operands[3]), unknown = undefined(operands[3]);
    if (operands[0].width >= 2) {
      const auto half = [&](unsigned part) {
        return unknown | (chosen & undefined_half(operands[1], part)) | (~chosen & undefined_half(operands[2], part));
      };
      note_halves(operands[0], half(0), half(1), lanes);
    }
    return lanes & (unknown | (chosen & undefined(operands[1])) | (~chosen & undefined(operands[2])));
  }
  if (operands[0].width >= 2 && name.substr(0, 4) == "cvt.") {
    note_converted_halves(instruction, lanes);
  } else if (operands[0].width >= 2 && (name.substr(name.size() - 2) == "x2" || (operands.size() == 2 && name.substr(0, 4) == "mov."))) {
    Mask low = 0, high = 0;  // the two results do not touch each other
    for (std::size_t k = 1; k < operands.size(); ++k) {
      low |= undefined_half(operands[k], 0);
      high |= undefined_half(operands[k], 1);
    }
    note_halves(operands[0], low, high, lanes);
  }
  if (name == "prmt.b32" && undefined(operands[3]) == 0) {  // only the bytes that are chosen count
    Mask result = 0;
    for (unsigned lane = 0; lane < kLanes; ++lane) {
      if ((missing_ >> lane & 1) == 0) continue;
      const std::uint64_t selectors = value(operands[3], lane);
      for (unsigned byte = 0; byte < 4; ++byte) {
        const auto chosen = static_cast<unsigned>(selectors >> (4 * byte) & 7);
        result |= Mask{1} << lane & undefined_half(operands[chosen < 4 ? 1 : 2], chosen % 4 / 2);
      }
    }
    return lanes & result;
  }
  if (name == "and.pred" || name == "or.pred") {
    const Mask settles = name == "or.pred" ? kAllLanes : 0;  // the value that makes the other one irrelevant
    const Mask a = undefined(operands[1]), b = undefined(operands[2]);
    return lanes & ((a & (b | (predicate(operands[2]) ^ settles))) | (b & (a | (predicate(operands[1]) ^ settles))));
  }
  return missing_;
}

// Of two numbers into a pair: the first one becomes the upper half. Of a pair into a pair: each half by itself.
void PtxWarp::note_converted_halves(const Instruction& instruction, Mask lanes) {
  const auto& operands = instruction.operands;
  const std::string_view name = instruction.form->opcode;
  const std::size_t last = name.rfind('.');
  const auto is_pair = [](std::string_view type) { return type.size() > 2 && type.substr(type.size() - 2) == "x2"; };
  if (last == std::string_view::npos || !is_pair(name.substr(0, last))) return;
  if (operands.size() == 2 && is_pair(name)) {
    note_halves(operands[0], undefined_half(operands[1], 0), undefined_half(operands[1], 1), lanes);
  } else if (operands.size() == 3 && name.substr(last) == ".f32") {
    note_halves(operands[0], undefined(operands[2]), undefined(operands[1]), lanes);
  }
}

void PtxWarp::mark_undefined(std::uint32_t destination, Mask lanes, Lack lack, std::uint64_t address) {
  const bool from_memory = lack != Lack::kRegister;
  defined_[destination] &= ~lanes;
  if (!halves_.empty()) {
    const auto found = halves_.find(destination);
    if (found != halves_.end() && found->second.pc != at_) halves_.erase(found);
  }
  if (blames_.empty()) blames_.resize(defined_.size());
  if (missing_ == 0 && !from_memory) {
    blames_[destination].lanes &= ~lanes;  // whoever reads it first is to blame
    return;
  }
  Blame& known = blames_[destination];
  if (from_memory && known.lack == lack && known.pc == at_) {  // another lane of the same read
    known.lanes |= lanes;
    return;
  }
  known = from_memory ? Blame{lanes, at_, destination, lack, address} : blame_;
  known.lanes = lanes;
}

// Registers that a tcgen05.ld writes are waited for by whoever touches them: PTX wants a tcgen05.wait::ld before, but
// kernels known to be right go without, because ptxas keeps track of registers.
void PtxWarp::check_in_flight(const Instruction& instruction) {
  const auto check = [&](std::uint32_t index, bool reads) {
    const RegistersInFlight::State state = in_flight_.of(index);
    if (state.use == RegistersInFlight::Use::kTensorLoad) {
      in_flight_.land(state.use, state.group + 1);
      ordering().acquire(ordering().actor(actor_warp(), Ordering::Queue::kTensorLoads), static_cast<Clock>(state.group));
    } else if (state.use != RegistersInFlight::Use::kNone && !(reads && !RegistersInFlight::stops_reading(state.use))) {
      throw Violation{FaultKind::kInFlight, name_of(index) + " " + RegistersInFlight::describe(state.use)};
    }
  };
  for (const std::uint32_t source : instruction.sources) check(source, true);
  for (const std::uint32_t destination : instruction.destinations) check(destination, false);
}

void PtxWarp::report_uninitialized(std::uint32_t index, Mask lanes) const {
  const Mask missing = lanes & ~defined_[index];
  if (blames_.empty() || (blames_[index].lanes & missing) == 0) {
    throw Violation{FaultKind::kUninitializedRegister, name_of(index) + " is read and has no value", lowest(missing)};
  }
  const Blame& blame = blames_[index];
  const std::string use = "; " + kernel_.where(at_) + " `" + kernel_.text_of(at_) + "` uses what came of it";
  const int lane = lowest(missing & blame.lanes);
  if (blame.lack == Lack::kTensor) {
    throw Violation{FaultKind::kUninitializedTensor,
                    "lane " + std::to_string(blame.address >> 16) + ", column " + std::to_string(blame.address & 0xffff) +
                        " has no value" + use,
                    lane, blame.address, blame.pc};
  }
  if (blame.lack == Lack::kShared) {
    throw Violation{FaultKind::kUninitializedShared, std::string(kNeverWritten) + use, lane,
                    blame.address, blame.pc};
  }
  throw Violation{FaultKind::kUninitializedRegister, name_of(blame.index) + " is read and has no value" + use, lane, {},
                  blame.pc};
}

Place PtxWarp::place(std::uint32_t pc) const {
  return kernel_.place_of(pc, block_.index(), static_cast<int>(index_));
}

std::uint64_t PtxWarp::value(const Operand& operand, unsigned lane) const {
  switch (operand.width) {
    case 1: return row<std::uint8_t>(operand)[lane];
    case 2: return row<std::uint16_t>(operand)[lane];
    case 4: return row<std::uint32_t>(operand)[lane];
    default: return row<std::uint64_t>(operand)[lane];
  }
}

void PtxWarp::set_value(const Operand& operand, unsigned lane, std::uint64_t value) {
  switch (operand.width) {
    case 1: out<std::uint8_t>(operand)[lane] = static_cast<std::uint8_t>(value); break;
    case 2: out<std::uint16_t>(operand)[lane] = static_cast<std::uint16_t>(value); break;
    case 4: out<std::uint32_t>(operand)[lane] = static_cast<std::uint32_t>(value); break;
    default: out<std::uint64_t>(operand)[lane] = value; break;
  }
}

}  // namespace msa_ops::emulator::ptx

#include "warp.hpp"

#include <algorithm>
#include <cstring>

namespace msa_ops::emulator::ptx {
namespace {

int lowest(Mask lanes) { return __builtin_ctz(lanes); }

}  // namespace

PtxWarp::PtxWarp(const Kernel& kernel, ThreadBlock& block, unsigned index, unsigned lanes)
    : kernel_(kernel),
      block_(block),
      index_(index),
      initial_lanes_(lanes == kLanes ? kAllLanes : (Mask{1} << lanes) - 1),
      file_(kernel.register_bytes()),
      special_(kSpecialRegisters.size() * kLanes * sizeof(std::uint32_t)),
      base_{file_.data(), kernel.constants().data(), special_.data()},
      defined_(kernel.registers().size()),
      counts_(kernel.instructions().size()) {}

void PtxWarp::start() {
  std::fill(defined_.begin(), defined_.end(), 0);
  in_flight_.reset(defined_.size());
  wgmma_.reset(kernel_.uses_wgmma() ? defined_.size() : 0);
  live_ = initial_lanes_;
  paths_.assign(1, {0, static_cast<std::uint32_t>(kernel_.instructions().size()), live_});
  at_ = 0;
  parked_ = 0;
  waiting_ = false;
  const auto& shape = block_.shape();
  auto* rows = reinterpret_cast<std::uint32_t(*)[kLanes]>(special_.data());
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    const unsigned thread = index_ * kLanes + lane;
    const Mask bit = Mask{1} << lane;
    const std::uint32_t values[] = {
        thread % shape.block[0],
        thread / shape.block[0] % shape.block[1],
        thread / shape.block[0] / shape.block[1],
        shape.block[0],
        shape.block[1],
        shape.block[2],
        block_.index()[0],
        block_.index()[1],
        block_.index()[2],
        shape.grid[0],
        shape.grid[1],
        shape.grid[2],
        lane,
        index_,
        (initial_lanes_ != 0 ? (shape.block[0] * shape.block[1] * shape.block[2] + kLanes - 1) / kLanes : 0),
        bit,
        bit - 1,
        bit | (bit - 1),
        ~(bit | (bit - 1)),
        ~(bit - 1),
        static_cast<std::uint32_t>(shape.dynamic_shared_memory),
    };
    for (std::size_t i = 0; i < kSpecialRegisters.size(); ++i) rows[i][lane] = values[i];
  }
}

WarpProgram::State PtxWarp::run(std::uint64_t instructions, std::uint64_t& executed) {
  const std::vector<Instruction>& code = kernel_.instructions();
  while (executed < instructions) {
    Path& path = paths_.back();
    if (path.next >= code.size()) {
      leave(path.lanes);
    } else if (path.next == path.reconvergence) {
      paths_.pop_back();  // the entry below continues here with all its lanes
    } else {
      at_ = path.next++;
      ++executed;
      try {
        step(code[at_]);
        ++counts_[at_];
        parked_ = 0;
      } catch (const Violation& violation) {
        if (violation.kind != FaultKind::kDivergence || !let_others_go_first()) throw Fault(violation, place());
      }
    }
    if (paths_.empty()) return State::kDone;
    if (waiting_) {
      waiting_ = false;
      return State::kWaiting;
    }
  }
  return State::kReady;
}

// The path on top is at an instruction that wants lanes of other paths, and has done nothing of it. They may come to
// the same place, or end, so they run first if they do not wait for this path. False if all of them have tried.
bool PtxWarp::let_others_go_first() {
  const std::size_t end = kernel_.instructions().size();
  for (const Path& path : paths_) {
    if (path.reconvergence != end) return false;
  }
  const Path path{at_, paths_.back().reconvergence, paths_.back().lanes};
  paths_.pop_back();
  for (Path& other : paths_) {
    if (other.next == at_) {
      other.lanes |= path.lanes;
      parked_ = 0;
      return true;
    }
  }
  paths_.insert(paths_.begin(), path);
  return ++parked_ < paths_.size();
}

void PtxWarp::step(const Instruction& instruction) {
  Mask lanes = paths_.back().lanes;
  if (instruction.guard.present) {
    if ((lanes & ~defined_[instruction.guard.index]) != 0) report_uninitialized(instruction, lanes);
    lanes &= predicate(instruction.guard);
    if (lanes == 0) return;
  }
  for (const std::uint32_t source : instruction.sources) {
    if ((lanes & ~defined_[source]) != 0) report_uninitialized(instruction, lanes);
  }
  if (in_flight_.any()) check_in_flight(instruction);
  if (kernel_.uses_wgmma()) {
    for (const std::uint32_t source : instruction.sources) wgmma_.touch(source);
    for (const std::uint32_t destination : instruction.destinations) wgmma_.touch(destination);
  }
  undefined_ = 0;
  instruction.handler(*this, instruction, lanes);
  for (const std::uint32_t destination : instruction.destinations) defined_[destination] |= lanes;
  if (undefined_ != 0) defined_[instruction.destinations[0]] &= ~undefined_;
}

void PtxWarp::check_in_flight(const Instruction& instruction) const {
  const auto check = [&](std::uint32_t index, bool reads) {
    const RegistersInFlight::Use use = in_flight_.of(index).use;
    if (use == RegistersInFlight::Use::kNone || (reads && !RegistersInFlight::stops_reading(use))) return;
    throw Violation{FaultKind::kInFlight, name_of(index) + " " + RegistersInFlight::describe(use)};
  };
  for (const std::uint32_t source : instruction.sources) check(source, true);
  for (const std::uint32_t destination : instruction.destinations) check(destination, false);
}

void PtxWarp::report_uninitialized(const Instruction& instruction, Mask lanes) const {
  const auto check = [&](std::uint32_t index) {
    if (const Mask missing = lanes & ~defined_[index]; missing != 0) {
      throw Violation{FaultKind::kUninitializedRegister,
                      kernel_.registers()[index].name + " is read and has no value", lowest(missing)};
    }
  };
  if (instruction.guard.present) check(instruction.guard.index);
  for (const std::uint32_t source : instruction.sources) check(source);
  throw Violation{FaultKind::kUninitializedRegister, "a register is read and has no value", lowest(lanes)};
}

void PtxWarp::branch(const Instruction& instruction, Mask taken) {
  Path& path = paths_.back();
  const Mask passed = path.lanes & ~taken;
  if (passed == 0) {
    path.next = instruction.target;
    return;
  }
  const std::uint32_t fallthrough = path.next;
  const std::uint32_t meet = instruction.reconvergence;
  // If the lanes meet where this path ends anyway, the entry below already waits there for all of them.
  if (meet == path.reconvergence) paths_.pop_back();
  else path.next = meet;
  if (fallthrough != meet) paths_.push_back({fallthrough, meet, passed});
  if (instruction.target != meet) paths_.push_back({instruction.target, meet, taken});
}

void PtxWarp::leave(Mask lanes) {
  live_ &= ~lanes;
  for (Path& path : paths_) path.lanes &= ~lanes;
  paths_.erase(std::remove_if(paths_.begin(), paths_.end(), [](const Path& path) { return path.lanes == 0; }),
               paths_.end());
}

Place PtxWarp::place() const {
  const Instruction& instruction = kernel_.instructions()[at_];
  return {kernel_.name(), instruction.line, instruction.form->opcode, block_.index(), static_cast<int>(index_)};
}

void PtxWarp::add_to(Counters& counters) const {
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    if (counts_[i] > 0) counters.warp_instructions[kernel_.instructions()[i].form->opcode] += counts_[i];
  }
  counters.global_bytes_read += global_read_;
  counters.global_bytes_written += global_written_;
}

std::uint64_t PtxWarp::value(const Operand& operand, unsigned lane) const {
  switch (operand.width) {
    case 2: return row<std::uint16_t>(operand)[lane];
    case 4: return row<std::uint32_t>(operand)[lane];
    default: return row<std::uint64_t>(operand)[lane];
  }
}

void PtxWarp::set_value(const Operand& operand, unsigned lane, std::uint64_t value) {
  switch (operand.width) {
    case 2: out<std::uint16_t>(operand)[lane] = static_cast<std::uint16_t>(value); break;
    case 4: out<std::uint32_t>(operand)[lane] = static_cast<std::uint32_t>(value); break;
    default: out<std::uint64_t>(operand)[lane] = value; break;
  }
}

}  // namespace msa_ops::emulator::ptx

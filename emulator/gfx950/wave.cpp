#include "wave.hpp"

#include <algorithm>
#include <string>
#include <type_traits>

#include "forms.hpp"

namespace msa_ops::emulator::gfx950 {

std::string name_of_row(unsigned index) {
  return (index < kAccumulators ? "v" : "a") + std::to_string(index % kAccumulators);
}

std::string name_of_scalar(unsigned index) {
  switch (index) {
    case kVcc: return "vcc_lo";
    case kVcc + 1: return "vcc_hi";
    case kM0: return "m0";
    case kExec: return "exec_lo";
    case kExec + 1: return "exec_hi";
    default: return "s" + std::to_string(index);
  }
}

Wave::Wave(const Kernel& kernel, ThreadBlock& block, std::shared_ptr<Workgroup> workgroup, unsigned index,
           unsigned lanes)
    : kernel_(kernel),
      block_(block),
      workgroup_(std::move(workgroup)),
      index_(index),
      initial_lanes_(lanes),
      vector_storage_(kRows * kLanes + 16),
      ready_(kRows),
      unused_(kRows),
      follows_(kRows),
      pending_(kRows),
      origins_(kRows),
      issued_(kRows),
      rare_(kRows),
      vector_queue_(kVectorCounter + 1),
      lds_queue_(kLdsCounter + 1),
      counts_(kernel.instructions().size()) {
  const auto address = reinterpret_cast<std::uintptr_t>(vector_storage_.data());
  vector_ = vector_storage_.data() + ((64 - address % 64) % 64) / sizeof(std::uint32_t);
  const std::size_t scratch = std::size_t{kernel.image().descriptor.private_segment_bytes} * kLanes;
  scratch_.resize(scratch);
  scratch_written_.resize(scratch);
}

void Wave::start() {
  const KernelDescriptor& descriptor = kernel_.image().descriptor;
  if (index_ == 0) {
    workgroup_->lds.reset();
    const auto& at = block_.index();
    const auto& grid = block_.shape().grid;
    workgroup_->group =
        coherence().start(kernel_.device(), at[0] + std::uint64_t{grid[0]} * (at[1] + std::uint64_t{grid[1]} * at[2]));
    workgroup_->live_waves = block_.num_warps();
  }
  coherence().progress().start(this);
  found_.clear();
  idle_epoch_ = 0;
  at_barrier_ = false;
  held_ = 0;
  polled_at_ = ~0U;
  unseen_.clear();
  races_.clear();
  workgroup_->lds.set_reader(index_, this);
  followed_.clear();
  followed_all_ = true;
  const auto forget = [&](auto& rows) {
    using Row = typename std::decay_t<decltype(rows)>::value_type;
    std::fill(rows.begin(), rows.begin() + kernel_.rows_used().first, Row{});
    std::fill(rows.begin() + kAccumulators, rows.begin() + kernel_.rows_used().second, Row{});
  };
  forget(ready_);
  forget(unused_);
  forget(pending_);
  bytes_.clear();
  forget(origins_);
  forget(issued_);
  scalar_issued_.fill(0);
  forget(rare_);
  matrix_free_ = matrix_horizon_ = rare_horizon_ = 0;
  lanes_masked_ = fp64_product_ = hardware_register_at_ = 0;
  blamed_ = -1;
  std::fill(scratch_written_.begin(), scratch_written_.end(), std::uint8_t{0});
  scalar_.fill(0);
  scalar_state_.fill(0);
  result_lacking_ = 0;
  scc_ = scc_known_ = false;
  vector_head_ = vector_count_ = lds_head_ = lds_count_ = awaited_ = 0;
  scalar_loads_.clear();
  next_ = at_ = kernel_.entry_index();
  epoch_ = 1;
  clock_ = 1000;
  waiting_ = done_ = yield_ = false;
  mode_ = descriptor.rsrc1 >> 12 & 0xff;
  if (descriptor.dx10_clamp()) mode_ |= 1U << 8;
  if (descriptor.ieee_mode()) mode_ |= 1U << 9;
  set_mode(mode_);

  const auto give = [&](unsigned& at, std::uint32_t value) {
    scalar_[at] = value;
    scalar_state_[at++] = 1;
  };
  unsigned at = 0;
  const auto give_address = [&](std::uint64_t address) {
    give(at, static_cast<std::uint32_t>(address));
    give(at, static_cast<std::uint32_t>(address >> 32));
  };
  // Compilers ask for more than they use. What is not here has no value: using it is a fault.
  const unsigned properties = descriptor.properties;
  if ((properties & 1) != 0) at += 4;  // private segment buffer
  if ((properties & 2) != 0) give_address(kernel_.dispatch_packet());
  if ((properties & 4) != 0) at += 2;  // queue
  if ((properties & 8) != 0) give_address(kernel_.kernarg());
  if ((properties & 16) != 0) give_address(1);  // dispatch id
  if ((properties & 32) != 0) at += 2;          // base of flat scratch
  if ((properties & 64) != 0) give(at, descriptor.private_segment_bytes);
  const unsigned preload = descriptor.preload & 0x7f;
  for (unsigned i = 0; i < preload; ++i) {
    std::uint32_t word;
    std::memcpy(&word, reinterpret_cast<const std::uint32_t*>(kernel_.kernarg()) + (descriptor.preload >> 7) + i, 4);
    give(at, word);
  }
  at = descriptor.num_user_sgprs();
  for (unsigned axis = 0; axis < 3; ++axis) {
    if ((descriptor.rsrc2 >> (7 + axis) & 1) != 0) give(at, block_.index()[axis]);
  }
  const Mask live = initial_lanes_ >= kLanes ? kAllLanes : (Mask{1} << initial_lanes_) - 1;
  set_sgpr64(kExec, live);
  scalar_state_[kExec] = scalar_state_[kExec + 1] = 1;
  scalar_state_[kFlatScratch] = scalar_state_[kFlatScratch + 1] = 1;
  const auto& size = block_.shape().block;
  std::uint32_t* ids = row(0);
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    const unsigned flat = index_ * kLanes + lane;
    ids[lane] = flat % size[0] | flat / size[0] % size[1] << 10 | flat / (size[0] * size[1]) << 20;
  }
  ready_[0] = live;
}

void Wave::set_mode(std::uint32_t mode) {
  mode_ = mode;
  flush_ = (mode >> 4 & 3) != 3;
  dx10_clamp_ = (mode >> 8 & 1) != 0;
  ieee_ = (mode >> 9 & 1) != 0;
}

WarpProgram::State Wave::run(std::uint64_t instructions, std::uint64_t& executed) {
  const std::vector<Instruction>& code = kernel_.instructions();
  const Instruction* const first = code.data();
  const auto count = static_cast<std::uint32_t>(code.size());
  coherence().tick();
  at_barrier_ = false;
  if (held_ > 0) {
    --held_;
    return State::kYielded;
  }
  for (; executed < instructions;) {
    if (next_ >= count) {
      throw Fault({FaultKind::kOutOfBounds, "the wave runs past the end of the kernel"}, place());
    }
    at_ = next_++;
    ++executed;
    const Instruction& instruction = first[at_];
    try {
      step(instruction);
    } catch (const Violation& violation) {
      throw Fault(violation, place());
    }
    ++counts_[at_];
    ++clock_;
    if (done_) return State::kDone;
    if (waiting_) {
      waiting_ = false;
      at_barrier_ = true;
      return State::kWaiting;
    }
    if (yield_) {
      yield_ = false;
      return State::kYielded;
    }
  }
  return State::kReady;
}

void Wave::step(const Instruction& instruction) {
  Mask missing = 0;
  missing_high_ = 0;
  if ((instruction.form->flags & kSelfChecked) == 0) missing = check_reads(instruction);
  try {
    if (awaited_ != 0 || !scalar_loads_.empty()) check_writes(instruction);
    check_wait_states(instruction);
  } catch (const Violation& violation) {
    if (!accepts(violation.kind)) throw;
  }
  instruction.handler(*this, instruction);
  if (missing != 0) {
    for (unsigned i = 0; i < instruction.num_vector_writes; ++i) {
      const Range& range = instruction.vector_writes[i];
      for (unsigned r = range.first; r < unsigned{range.first} + range.count; ++r)
        undefine_from(r, missing, missing_from_);
    }
  }
  for (unsigned i = 0; i < instruction.num_scalar_writes; ++i) {
    const Range& range = instruction.scalar_writes[i];
    for (unsigned r = range.first; r < unsigned{range.first} + range.count; ++r) {
      if (scalar_state_[r] != 2) scalar_state_[r] = 1;
    }
  }
  if (result_lacking_ != 0) {
    note_lacking_bits(instruction);
    result_lacking_ = 0;
  }
  if (missing_high_ != 0) {
    undefine_from(instruction.destination.index + 1, missing_high_, missing_from_);
    if (instruction.mask_destination.kind == Operand::Kind::kScalar) {
      for (unsigned word = 0; word < 2; ++word) scalar_state_[instruction.mask_destination.index + word] = 0;
    }
  }
  if (instruction.encoding == Encoding::kSop1 && instruction.form->number <= 1 &&
      instruction.sources[0].kind == Operand::Kind::kScalar) {
    for (unsigned word = 0; word < instruction.destination.dwords; ++word) {
      const std::uint8_t state = scalar_state_[instruction.sources[0].index + word];
      const bool decides = instruction.destination.index + word - kExec < 2;
      if (state == 2 || (decides && state != 1)) require_scalar(instruction.sources[0].index + word);
      scalar_state_[instruction.destination.index + word] = state;
      scalar_lacking_[instruction.destination.index + word] = scalar_lacking_[instruction.sources[0].index + word];
    }
  }
  if (instruction.encoding >= Encoding::kVop1 && instruction.encoding <= Encoding::kMfma) note_issue(instruction);
  if ((instruction.hazards & kWideStore) != 0) note_store(instruction);
}

void Wave::end() {
  // Stores that nobody has waited for become visible some time later.
  for (unsigned i = 0; i < vector_count_; ++i) {
    std::uint64_t& store = vector_queue_[(vector_head_ + i) % vector_queue_.size()].store;
    if (store != 0) coherence().abandon(store);
    store = 0;
  }
  coherence().progress().end(this);
  if (--workgroup_->live_waves == 0) coherence().end(group());
  wait_vector(0);
  wait_scalar_and_lds(0);
  done_ = true;
}

std::byte* Wave::scratch(unsigned lane, std::uint32_t offset, unsigned bytes, bool write) {
  const std::uint32_t size = kernel_.image().descriptor.private_segment_bytes;
  if (offset > size || bytes > size - offset) {
    throw Violation{
        FaultKind::kOutOfBounds,
        "access of " + std::to_string(bytes) + " bytes of scratch memory; a lane has " + std::to_string(size),
        static_cast<int>(lane), offset};
  }
  const std::size_t at = std::size_t{lane} * size + offset;
  for (unsigned i = 0; i < bytes; ++i) {
    if (write) scratch_written_[at + i] = 1;
    else if (scratch_written_[at + i] == 0) {
      throw Violation{FaultKind::kUninitializedShared, "read of a byte of scratch memory that nothing has written",
                      static_cast<int>(lane), offset + i};
    }
  }
  return &scratch_[at];
}

Place Wave::place() const {
  const Instruction& instruction = kernel_.instructions()[blamed_ >= 0 ? static_cast<std::size_t>(blamed_) : at_];
  Place made{kernel_.name(), 0, text_of(instruction), block_.index(), static_cast<int>(index_)};
  made.line = static_cast<int>(instruction.address);
  made.by_address = true;
  return made;
}

std::uint32_t Wave::value32(const Operand& operand) const {
  switch (operand.kind) {
    case Operand::Kind::kScalar: return scalar_[operand.index];
    case Operand::Kind::kConstant: return static_cast<std::uint32_t>(operand.constant);
    case Operand::Kind::kScc: return scc_ ? 1 : 0;
    default: return 0;
  }
}

std::uint64_t Wave::value64(const Operand& operand) const {
  switch (operand.kind) {
    case Operand::Kind::kScalar: return sgpr64(operand.index);
    case Operand::Kind::kConstant: return operand.constant;
    case Operand::Kind::kScc: return scc_ ? 1 : 0;
    default: return 0;
  }
}

}  // namespace msa_ops::emulator::gfx950

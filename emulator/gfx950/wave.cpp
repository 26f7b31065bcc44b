#include "wave.hpp"

#include <algorithm>
#include <cstdio>
#include <string>
#include <type_traits>

#include "forms.hpp"

namespace msa_ops::emulator::gfx950 {
namespace {

constexpr unsigned kRows = 512;
constexpr unsigned kVectorCounter = 63;  // most that vmcnt counts
constexpr unsigned kLdsCounter = 15;
constexpr std::uint64_t kSector = 32;    // bytes

std::string hex(std::uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof(text), "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

int lowest(Mask lanes) { return __builtin_ctzll(lanes); }

}  // namespace

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
  const auto unsupported = [&](const char* what) {
    throw Violation{FaultKind::kOutOfBounds, std::string("the kernel wants ") + what + ", which the emulator has not"};
  };
  const unsigned properties = descriptor.properties;
  try {
    if ((properties & 1) != 0) unsupported("a private segment buffer");
    if ((properties & 2) != 0) unsupported("the dispatch packet");
    if ((properties & 4) != 0) unsupported("the queue");
    if ((properties & 8) != 0) {
      give(at, static_cast<std::uint32_t>(kernel_.kernarg()));
      give(at, static_cast<std::uint32_t>(kernel_.kernarg() >> 32));
    }
    if ((properties & 16) != 0) { give(at, 1); give(at, 0); }
    if ((properties & 32) != 0) unsupported("a flat scratch base in registers");
    if ((properties & 64) != 0) give(at, descriptor.private_segment_bytes);
  } catch (const Violation& violation) {
    throw Fault(violation, place());
  }
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
      if (scalar_state_[r] == 0) scalar_state_[r] = 1;
    }
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
      if (state == 2) require_scalar(instruction.sources[0].index + word);
      scalar_state_[instruction.destination.index + word] = state;
    }
  }
  if (instruction.encoding >= Encoding::kVop1 && instruction.encoding <= Encoding::kMfma) note_issue(instruction);
  if ((instruction.hazards & kWideStore) != 0) note_store(instruction);
}

Mask Wave::check_reads(const Instruction& instruction) {
  const Form& form = *instruction.form;
  Mask all_missing = 0;
  const Mask lanes = (form.flags & kIgnoresExec) != 0 ? kAllLanes : exec();
  for (unsigned i = 0; i < instruction.num_vector_reads; ++i) {
    const Range& range = instruction.vector_reads[i];
    for (unsigned r = range.first; r < unsigned{range.first} + range.count; ++r) {
      Mask missing = lanes & ~ready_[r];
      if (missing == 0) continue;
      missing = without_accepted(r, missing);
      if ((missing & pending_[r]) != 0) report_undefined(r, missing & pending_[r]);
      // A part that is all that the operand takes may be there.
      for (const Operand& operand : instruction.sources) {
        if (operand.kind != Operand::Kind::kVector || operand.index != range.first || range.count != 1) continue;
        unsigned bytes = 15;
        if (instruction.sdwa) {
          bytes = operand.select < 4 ? 1U << operand.select : operand.select < 6 ? 3U << (operand.select - 4) * 2 : 15U;
        } else if (operand.type == Type::kB8) {
          bytes = 1;
        } else if (operand.type == Type::kF16 || operand.type == Type::kB16) {
          bytes = operand.high ? 12 : 3;
        }
        if (bytes != 15 && bytes_defined(r, bytes, lanes)) missing = 0;
      }
      if (form.encoding == Encoding::kVop2 && form.number == 0 &&
          instruction.mask_source.kind == Operand::Kind::kScalar) {
        // v_cndmask takes one of its sources.
        const Mask chosen = sgpr64(instruction.mask_source.index);
        const bool first = instruction.sources[0].kind == Operand::Kind::kVector && instruction.sources[0].index == r;
        const bool second = instruction.sources[1].kind == Operand::Kind::kVector && instruction.sources[1].index == r;
        if (!(first && second)) missing &= first ? ~chosen : chosen;
      }
      if (const Mask found = missing & unused_[r]; found != 0) {
        use(r, found);
        missing &= ~found;
      }
      if (missing == 0) continue;
      // Sums of 64 bits whose upper half nobody wants are made with whatever the upper half of a summand holds.
      const bool sums =
          form.encoding == Encoding::kVop3 && (form.number == 488 || form.number == 489 || form.number == 520);
      if (sums && range.count == 2 && r == range.first + 1U && instruction.sources[2].kind == Operand::Kind::kVector &&
          instruction.sources[2].index == range.first) {
        if (origins_[r].kind == Origin::Kind::kUnknown)
          origins_[r] = {at_, static_cast<std::uint16_t>(r), Origin::Kind::kRegister};
        missing_from_ = r;
        missing_high_ |= missing;
        continue;
      }
      // What is missing is handed on by arithmetic; it is at fault where it decides something or leaves the registers.
      const bool hands_on = form.function != nullptr && instruction.mask_destination.kind == Operand::Kind::kNone;
      const bool moves = form.encoding == Encoding::kMfma && (form.number == 88 || form.number == 89);
      const bool to_lds = form.encoding == Encoding::kDs && r != instruction.sources[0].index && std::strncmp(form.name, "ds_write", 8) == 0;
      if (to_lds && origins_[r].kind != Origin::Kind::kRace) continue;  // its bytes there have no value then
      if (!hands_on && !moves) report_undefined(r, missing);
      if (origins_[r].kind == Origin::Kind::kUnknown)
        origins_[r] = {at_, static_cast<std::uint16_t>(r), Origin::Kind::kRegister};
      missing_from_ = r;
      all_missing |= missing;
    }
  }
  check_scalars(instruction);
  return all_missing;
}

void Wave::undefine_from(unsigned index, Mask lanes, unsigned from) {
  undefine(index, lanes);
  origins_[index] = origins_[from].kind != Origin::Kind::kUnknown
                        ? origins_[from]
                        : Origin{at_, static_cast<std::uint16_t>(from), Origin::Kind::kRegister};
}

void Wave::require_scalar(unsigned index) const {
  if (scalar_state_[index] == 1) return;
  if (scalar_state_[index] == 2) {
    if (accepts(FaultKind::kMissingWait)) return;
    throw Violation{FaultKind::kMissingWait,
                    name_of_scalar(index) + " is read while a scalar load is on its way to it"};
  }
  throw Violation{FaultKind::kUninitializedRegister, name_of_scalar(index) + " is read and has no value"};
}

void Wave::check_scalars(const Instruction& instruction) const {
  if (instruction.encoding == Encoding::kSop1 && instruction.form->number <= 1)
    return;  // s_mov hands on what is missing
  for (unsigned i = 0; i < instruction.num_scalar_reads; ++i) {
    const Range& range = instruction.scalar_reads[i];
    for (unsigned r = range.first; r < unsigned{range.first} + range.count; ++r) {
      if (scalar_state_[r] != 1) require_scalar(r);
    }
  }
  if ((instruction.form->flags & kReadsScc) != 0 && !scc_known_) {
    throw Violation{FaultKind::kUninitializedRegister, "scc is read and has no value"};
  }
}

void Wave::check_writes(const Instruction& instruction) {
  if (instruction.encoding != Encoding::kMubuf && instruction.encoding != Encoding::kDs &&
      instruction.encoding != Encoding::kGlobal && instruction.encoding != Encoding::kFlat &&
      instruction.encoding != Encoding::kScratch) {
    const Mask lanes = (instruction.form->flags & kIgnoresExec) != 0 ? kAllLanes : exec();
    for (unsigned i = 0; i < instruction.num_vector_writes; ++i) {
      const Range& range = instruction.vector_writes[i];
      for (unsigned r = range.first; r < unsigned{range.first} + range.count; ++r) {
        if (const Mask both = lanes & pending_[r]; both != 0) {
          throw Violation{FaultKind::kMissingWait, name_of_row(r) + " is written while a load is on its way to it",
                          lowest(both)};
        }
      }
    }
  }
  if (scalar_loads_.empty()) return;
  for (unsigned i = 0; i < instruction.num_scalar_writes; ++i) {
    const Range& range = instruction.scalar_writes[i];
    for (unsigned r = range.first; r < unsigned{range.first} + range.count; ++r) {
      if (scalar_state_[r] == 2) {
        throw Violation{FaultKind::kMissingWait,
                        name_of_scalar(r) + " is written while a scalar load is on its way to it"};
      }
    }
  }
}

Mask Wave::defined(const Range& range) const {
  Mask lanes = kAllLanes;
  for (unsigned r = range.first; r < unsigned{range.first} + range.count; ++r) {
    if (unused_[r] != 0) use(r, unused_[r] & ~ready_[r]);
    lanes &= ready_[r];
  }
  return lanes;
}

void Wave::undefine(unsigned index, Mask lanes) {
  ready_[index] &= ~lanes;
  unused_[index] &= ~lanes;
  if (!bytes_.empty()) {
    for (Mask& mask : bytes_[index]) mask &= ~lanes;
  }
}

void Wave::define_bytes(unsigned index, unsigned byte_mask, Mask lanes) {
  if (unused_[index] != 0) use(index, unused_[index] & ~ready_[index]);
  if ((lanes & ~ready_[index]) == 0) return;
  if (bytes_.empty()) bytes_.resize(kRows);
  Mask all = kAllLanes;
  for (unsigned byte = 0; byte < 4; ++byte) {
    if ((byte_mask >> byte & 1) != 0) bytes_[index][byte] |= lanes;
    all &= bytes_[index][byte];
  }
  ready_[index] |= all & lanes;
}

bool Wave::bytes_defined(unsigned index, unsigned byte_mask, Mask lanes) const {
  if (bytes_.empty()) return false;
  Mask all = kAllLanes;
  for (unsigned byte = 0; byte < 4; ++byte) {
    if ((byte_mask >> byte & 1) != 0) all &= bytes_[index][byte];
  }
  return (lanes & ~(ready_[index] | all)) == 0;
}

void Wave::report_undefined(unsigned index, Mask lanes) const {
  if (const Mask flying = lanes & pending_[index]; flying != 0) {
    std::string where;
    const auto look = [&](const std::vector<Outstanding>& queue, unsigned head, unsigned count, const char* counter) {
      for (unsigned i = 0; i < count; ++i) {
        const Outstanding& operation = queue[(head + i) % queue.size()];
        if (index >= operation.registers.first &&
            index < unsigned{operation.registers.first} + operation.registers.count &&
            (operation.lanes & flying) != 0) {
          where = " of " + hex(kernel_.instructions()[operation.instruction].address) + " (" + counter + ")";
        }
      }
    };
    look(vector_queue_, vector_head_, vector_count_, "vmcnt");
    look(lds_queue_, lds_head_, lds_count_, "lgkmcnt");
    throw Violation{FaultKind::kMissingWait, name_of_row(index) + " is read before a wait for the load" + where,
                    lowest(flying)};
  }
  const Origin& origin = origins_[index];
  if (origin.kind != Origin::Kind::kUnknown && origin.instruction != at_) {
    const std::string use = "; what comes of it is used at " + hex(kernel_.instructions()[at_].address) + " `" +
                            text_of(kernel_.instructions()[at_]) + "`";
    blamed_ = origin.instruction;
    if (origin.kind == Origin::Kind::kOutside) {
      throw Violation{FaultKind::kOutOfBounds, "read outside the workgroup's LDS" + use, lowest(lanes)};
    }
    if (origin.kind == Origin::Kind::kLds) {
      throw Violation{FaultKind::kUninitializedShared, "read of bytes of the LDS that nothing has written" + use,
                      lowest(lanes)};
    }
    if (origin.kind == Origin::Kind::kRace) {
      Violation race = races_.at(origin.instruction);
      race.message += use;
      throw race;
    }
    if (origin.kind == Origin::Kind::kUnseen) {
      const Coherence::Unseen& why = unseen_.at(origin.instruction);
      throw Violation{why.kind(), "the load " + why.text() + use, lowest(lanes)};
    }
    throw Violation{FaultKind::kUninitializedRegister, name_of_row(origin.row) + " is read and has no value" + use,
                    lowest(lanes)};
  }
  throw Violation{FaultKind::kUninitializedRegister, name_of_row(index) + " is read and has no value", lowest(lanes)};
}

// ---- waiting

Wave::Outstanding& Wave::issue_vector(Outstanding::Kind kind) {
  if (vector_count_ >= kVectorCounter) wait_vector(kVectorCounter - 1);
  Outstanding& operation = vector_queue_[(vector_head_ + vector_count_++) % vector_queue_.size()];
  operation.kind = kind;
  operation.in_flight = false;
  operation.instruction = at_;
  operation.registers = {};
  operation.lanes = operation.undefined = operation.raced = 0;
  operation.followed = 0;
  operation.outside = false;
  operation.any_unseen = false;
  operation.store = 0;
  operation.lds_bytes = operation.lds_bytes_b = 0;
  return operation;
}

Wave::Outstanding& Wave::issue_lds(Outstanding::Kind kind) {
  lds().tick();
  if (lds_count_ + scalar_loads_.size() >= kLdsCounter) wait_scalar_and_lds(kLdsCounter - 1);
  if (lds_count_ >= kLdsCounter) wait_scalar_and_lds(0);
  Outstanding& operation = lds_queue_[(lds_head_ + lds_count_++) % lds_queue_.size()];
  operation.kind = kind;
  operation.in_flight = false;
  operation.instruction = at_;
  operation.registers = {};
  operation.lanes = operation.undefined = operation.raced = 0;
  operation.followed = 0;
  operation.outside = false;
  operation.any_unseen = false;
  operation.store = 0;
  operation.lds_bytes = operation.lds_bytes_b = 0;
  return operation;
}

void Wave::await(Outstanding& operation, const Range& registers, Mask lanes) {
  // Results of one queue come in order, so a later load may go to the same register; one of the other queue may not.
  for (unsigned r = registers.first; r < unsigned{registers.first} + registers.count; ++r) {
    if (const Mask both = pending_[r] & lanes; both != 0) {
      const bool here = &operation >= vector_queue_.data() && &operation < vector_queue_.data() + vector_queue_.size();
      const std::vector<Outstanding>& other = here ? lds_queue_ : vector_queue_;
      const unsigned head = here ? lds_head_ : vector_head_, count = here ? lds_count_ : vector_count_;
      for (unsigned i = 0; i < count; ++i) {
        const Outstanding& known = other[(head + i) % other.size()];
        if (r >= known.registers.first && r < unsigned{known.registers.first} + known.registers.count &&
            (known.lanes & both) != 0) {
          throw Violation{FaultKind::kMissingWait, name_of_row(r) + " is loaded while another load is on its way to it",
                          lowest(known.lanes & both)};
        }
      }
    }
    pending_[r] |= lanes;
    undefine(r, lanes);
  }
  operation.registers = registers;
  operation.lanes = lanes;
  ++awaited_;
}

void Wave::issue_scalar(const Range& registers) {
  if (lds_count_ + scalar_loads_.size() >= kLdsCounter) wait_scalar_and_lds(0);
  for (unsigned r = registers.first; r < unsigned{registers.first} + registers.count; ++r) {
    if (scalar_state_[r] == 2) {
      throw Violation{FaultKind::kMissingWait, name_of_scalar(r) + " is loaded while another load is on its way to it"};
    }
    scalar_state_[r] = 2;
  }
  scalar_loads_.push_back(registers);
}

bool Wave::still_awaited(unsigned index, Mask& lanes) const {
  Mask others = 0;
  const auto look = [&](const std::vector<Outstanding>& queue, unsigned head, unsigned count) {
    for (unsigned i = 0; i < count; ++i) {
      const Outstanding& operation = queue[(head + i) % queue.size()];
      if (index >= operation.registers.first &&
          index < unsigned{operation.registers.first} + operation.registers.count) {
        others |= operation.lanes;
      }
    }
  };
  look(vector_queue_, vector_head_, vector_count_);
  look(lds_queue_, lds_head_, lds_count_);
  lanes &= ~others;
  return lanes != 0;
}

Coherence::Access Wave::begin_access(bool atomic) const {
  const Instruction& i = present();
  using Scope = Coherence::Scope;
  const Scope scope = atomic ? (i.sc1 ? Scope::kSystem : Scope::kAgent)
                             : i.sc1 ? (i.sc0 ? Scope::kSystem : Scope::kAgent) : Scope::kWorkgroup;
  return coherence().begin(group(), scope, i.address, atomic);
}

void Wave::finish_access(Coherence::Access& access, Outstanding& operation) {
  bool early = false;
  operation.store = coherence().finish(access, this, early);
  if (early) {
    held_ = 3;
    yield();
  }
}

void Wave::note_unseen(Outstanding& operation, const std::array<Mask, 4>& lanes, const Coherence::Unseen& why) {
  operation.unseen = lanes;
  operation.any_unseen = true;
  unseen_[at_] = why;
}

void Wave::note_polling(std::uint64_t found) {
  if (polled_at_ == at_) yield();
  polled_at_ = at_;
  Progress& progress = coherence().progress();
  std::uint64_t& last = found_[at_];
  if (last != found) {
    last = found;
    progress.changed();
    return;
  }
  idle_epoch_ = progress.epoch();
  if (!progress.look()) return;
  const std::vector<const Wave*>& waves = progress.waves();
  const auto is_idle = [&](const Wave* one) { return one->at_barrier_ || one->idle_epoch_ == progress.epoch(); };
  if (std::all_of(waves.begin(), waves.end(), is_idle)) report_deadlock(waves);
}

void Wave::report_deadlock(const std::vector<const Wave*>& waves) const {
  constexpr std::size_t kShown = 8;
  std::string message = "all waves wait for what none of them does";
  for (std::size_t i = 0; i < std::min(waves.size(), kShown); ++i) {
    const Wave& one = *waves[i];
    message += "; ";
    if (one.kernel_.device() != kernel_.device()) message += "device " + std::to_string(one.kernel_.device()) + " ";
    message += "workgroup " + std::to_string(one.group()->number) + " wave " + std::to_string(one.index_) + " at " +
               hex(one.kernel_.instructions()[one.at_].address) + (one.at_barrier_ ? " at a barrier" : "");
  }
  if (waves.size() > kShown) message += "; and " + std::to_string(waves.size() - kShown) + " more";
  throw Violation{FaultKind::kDeadlock, message};
}

// The operation has been taken out of its queue.
void Wave::complete(Outstanding& operation) {
  if (operation.store != 0) coherence().complete(operation.store);
  if (operation.registers.count > 0) {
    --awaited_;
    for (unsigned r = operation.registers.first; r < unsigned{operation.registers.first} + operation.registers.count;
         ++r) {
      Mask lanes = operation.lanes;
      if (awaited_ != 0) still_awaited(r, lanes);
      pending_[r] &= ~lanes;
      if (operation.followed != 0) {
        if (unused_[r] != 0) use(r, unused_[r] & ~ready_[r]);  // of another read
        unused_[r] |= lanes & ~operation.undefined;
        follows_[r] = operation.followed;
      } else {
        ready_[r] |= lanes & ~operation.undefined;
      }
      if (operation.any_unseen) {
        const Mask unseen = lanes & operation.unseen[r - operation.registers.first];
        if (unseen != 0) {
          ready_[r] &= ~unseen;
          origins_[r] = {operation.instruction, static_cast<std::uint16_t>(r), Origin::Kind::kUnseen};
        }
      }
      if ((lanes & operation.undefined) != 0)
        origins_[r] = {operation.instruction, static_cast<std::uint16_t>(r),
                       (lanes & operation.raced) != 0 ? Origin::Kind::kRace
                       : operation.outside            ? Origin::Kind::kOutside
                                                      : Origin::Kind::kLds};
    }
  }
  if (operation.in_flight) {
    const bool write = operation.kind != Outstanding::Kind::kLdsRead;
    lds().tick();
    const std::uint32_t address = kernel_.instructions()[operation.instruction].address;
    for_lanes(operation.kind == Outstanding::Kind::kLdsRead || operation.kind == Outstanding::Kind::kLdsWrite ||
                      operation.kind == Outstanding::Kind::kLoadToLds
                  ? operation.lanes
                  : Mask{0},
              [&](unsigned lane) {
                lds().settle(write, operation.lds_address[lane], operation.lds_bytes, index_, epoch_, address);
                if (operation.lds_bytes_b > 0) {
                  lds().settle(write, operation.lds_address_b[lane], operation.lds_bytes_b, index_, epoch_, address);
                }
              });
  }
}

void Wave::follow(Outstanding& operation) {
  constexpr std::size_t kMost = 64;
  if (followed_.size() == kMost) {
    stop_following();
    followed_all_ = false;
  }
  FollowedRead& read = followed_.emplace_back();
  read.instruction = at_;
  read.registers = operation.registers;
  read.lanes = operation.lanes & ~operation.undefined;
  read.used = 0;
  read.bytes = operation.lds_bytes;
  read.bytes_b = operation.lds_bytes_b;
  std::memcpy(read.address, operation.lds_address, sizeof(Row));
  if (read.bytes_b != 0) std::memcpy(read.address_b, operation.lds_address_b, sizeof(Row));
  operation.followed = static_cast<std::uint32_t>(followed_.size());
}

void Wave::use(unsigned index, Mask lanes) const {
  followed_[follows_[index] - 1].used |= lanes;
  unused_[index] &= ~lanes & ~ready_[index];
  ready_[index] |= lanes;
}

// What has been read until now stays so: a barrier comes, or too much was read.
void Wave::stop_following() {
  for (FollowedRead& read : followed_) {
    for (unsigned r = read.registers.first; r < unsigned{read.registers.first} + read.registers.count; ++r) {
      ready_[r] |= unused_[r];
      unused_[r] = 0;
    }
  }
  followed_.clear();
  for (unsigned i = 0; i < lds_count_; ++i) lds_queue_[(lds_head_ + i) % lds_queue_.size()].followed = 0;
}

bool Wave::forget_read(std::uint32_t address, unsigned byte_mask, const Violation& fault) {
  if (!followed_all_) return false;
  const auto meets = [&](std::uint32_t at, std::uint32_t bytes) {
    for (unsigned byte = 0; byte < 4; ++byte) {
      if ((byte_mask >> byte & 1) != 0 && address + byte >= at && address + byte < at + bytes) return true;
    }
    return false;
  };
  for (std::size_t index = 0; index < followed_.size(); ++index) {
    FollowedRead& read = followed_[index];
    Mask met = 0;
    for_lanes(read.lanes, [&](unsigned lane) {
      if (meets(read.address[lane], read.bytes) || (read.bytes_b != 0 && meets(read.address_b[lane], read.bytes_b)))
        met |= Mask{1} << lane;
    });
    if (met == 0) continue;
    if (kernel_.accepted().has(FaultKind::kRace, kernel_.instructions()[read.instruction].address)) continue;
    if ((met & read.used) != 0) return false;
    read.lanes &= ~met;
    races_.insert_or_assign(read.instruction, fault);
    for (unsigned r = read.registers.first; r < unsigned{read.registers.first} + read.registers.count; ++r) {
      if (unused_[r] == 0 || follows_[r] != index + 1) continue;
      // Lanes that have been written since have another value.
      const Mask lost = unused_[r] & met & ~ready_[r];
      unused_[r] &= ~lost;
      if (lost != 0) origins_[r] = {read.instruction, static_cast<std::uint16_t>(r), Origin::Kind::kRace};
    }
    for (unsigned i = 0; i < lds_count_; ++i) {
      Outstanding& operation = lds_queue_[(lds_head_ + i) % lds_queue_.size()];
      if (operation.followed != index + 1) continue;
      operation.undefined |= met;
      operation.raced |= met;
    }
  }
  return true;
}

void Wave::wait_vector(unsigned count) {
  while (vector_count_ > count) {
    Outstanding& operation = vector_queue_[vector_head_];
    vector_head_ = (vector_head_ + 1) % vector_queue_.size();
    --vector_count_;
    complete(operation);
  }
}

void Wave::wait_scalar_and_lds(unsigned count) {
  // Scalar loads come back in any order, so that only a wait for everything is a wait for one of them; operations of
  // the LDS come in order, and those of the two kinds in any.
  if (count == 0) {
    for (const Range& range : scalar_loads_) {
      for (unsigned r = range.first; r < unsigned{range.first} + range.count; ++r) scalar_state_[r] = 1;
    }
    scalar_loads_.clear();
  }
  while (lds_count_ > count) {
    Outstanding& operation = lds_queue_[lds_head_];
    lds_head_ = (lds_head_ + 1) % lds_queue_.size();
    --lds_count_;
    complete(operation);
  }
}

void Wave::barrier() {
  const unsigned threads = block_.shape().block[0] * block_.shape().block[1] * block_.shape().block[2];
  // What is still under way goes on behind the barrier.
  for (unsigned i = 0; threads > kLanes && i < lds_count_; ++i) {
    Outstanding& operation = lds_queue_[(lds_head_ + i) % lds_queue_.size()];
    if (operation.in_flight || operation.lanes == 0 || operation.lds_bytes == 0) continue;
    operation.in_flight = true;
    const bool write = operation.kind == Outstanding::Kind::kLdsWrite;
    const std::uint32_t address = kernel_.instructions()[operation.instruction].address;
    for_lanes(operation.lanes, [&](unsigned lane) {
      lds().put_in_flight(write, operation.lds_address[lane], operation.lds_bytes, index_, address);
      if (operation.lds_bytes_b > 0) {
        lds().put_in_flight(write, operation.lds_address_b[lane], operation.lds_bytes_b, index_, address);
      }
    });
  }
  stop_following();
  followed_all_ = true;
  ++epoch_;
  if (threads <= kLanes) return;
  ++barrier_waits_;
  block_.barriers().arrive(0, index_, 0, true);
  waiting_ = true;
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

void Wave::count_sectors(std::uint64_t address, unsigned bytes) {
  for (std::uint64_t sector = address / kSector; sector <= (address + bytes - 1) / kSector; ++sector) {
    if (!sectors_.empty()) {
      if (sector == sectors_.back()) continue;
      if (sector <= last_sector_ && std::find(sectors_.rbegin(), sectors_.rend(), sector) != sectors_.rend()) continue;
    }
    sectors_.push_back(sector);
    last_sector_ = std::max(last_sector_, sector);
  }
}

void Wave::end_request() {
  if (sectors_.empty()) return;
  ++global_requests_;
  global_sectors_ += sectors_.size();
  sectors_.clear();
  last_sector_ = 0;
}

void Wave::add_to(Counters& counters) const {
  std::uint64_t total = 0;
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    if (counts_[i] == 0) continue;
    total += counts_[i];
    const Form& form = *kernel_.instructions()[i].form;
    counters.warp_instructions[form.name] += counts_[i];
    if (const MatrixWork work = matrix_work(form); work.flops > 0)
      counters.matrix_flops[work.kind] += counts_[i] * work.flops;
  }
  counters.shared_passes += lds_cycles;
  counters.shared_passes_at_least += lds_cycles - lds_conflict_cycles;
  counters.out_of_range_lanes += out_of_range_lanes;
  counters.global_bytes_read += global_read_;
  counters.global_bytes_written += global_written_;
  counters.global_requests += global_requests_;
  counters.global_sectors += global_sectors_;
  counters.waits += barrier_waits_;
  counters.waits_for["barrier"] += barrier_waits_;
  counters.waits_for["vmcnt"] += vector_waits_;
  counters.waits_for["lgkmcnt"] += lds_waits_;
  counters.waits_of_warp[index_] += barrier_waits_;
  counters.instructions_of_warp[index_] += total;
  const char* const names[] = {"shared", "local"};
  for (std::size_t space = 0; space < space_bytes_.size(); ++space) {
    const auto& [read, written] = space_bytes_[space];
    if (read + written == 0) continue;
    auto& all = counters.bytes_by_space[names[space]];
    all[0] += read;
    all[1] += written;
  }
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

// Operations that have been issued and not waited for: what registers wait for, and what comes when.
#include <cstdint>
#include <vector>

#include "wave.hpp"

namespace msa_ops::emulator::gfx950 {

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

Wave::Outstanding& Wave::issue_vector(Outstanding::Kind kind) {
  if (vector_count_ >= kVectorCounter) wait_vector(kVectorCounter - 1);
  Outstanding& operation = vector_queue_[(vector_head_ + vector_count_++) % vector_queue_.size()];
  operation.renew(kind, at_);
  return operation;
}

Wave::Outstanding& Wave::issue_lds(Outstanding::Kind kind) {
  lds().tick();
  if (lds_count_ + scalar_loads_.size() >= kLdsCounter) wait_scalar_and_lds(kLdsCounter - 1);
  if (lds_count_ >= kLdsCounter) wait_scalar_and_lds(0);
  Outstanding& operation = lds_queue_[(lds_head_ + lds_count_++) % lds_queue_.size()];
  operation.renew(kind, at_);
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

}  // namespace msa_ops::emulator::gfx950

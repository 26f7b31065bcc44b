#include "polling.hpp"

#include <cstddef>
#include <cstring>

namespace msa_ops::emulator::gfx950 {
namespace {

constexpr std::size_t kLongest = 48;  // instructions of a loop, and in front of it

bool is_narrow_read(const Instruction& i) {
  return i.encoding == Encoding::kDs && std::strncmp(i.form->name, "ds_read_", 8) == 0 && i.destination.dwords <= 2;
}

bool overlaps(const Range& range, const Operand& operand) {
  return operand.kind == Operand::Kind::kVector && range.first < operand.index + operand.dwords &&
         operand.index < range.first + range.count;
}

bool writes(const Instruction& i, const Operand& operand) {
  for (unsigned at = 0; at < i.num_vector_writes; ++at) {
    if (overlaps(i.vector_writes[at], operand)) return true;
  }
  return false;
}

bool reads(const Instruction& i, const Operand& operand) {
  for (unsigned at = 0; at < i.num_vector_reads; ++at) {
    if (overlaps(i.vector_reads[at], operand)) return true;
  }
  return false;
}

// Nothing that a loop which only waits has.
bool is_work(const Instruction& i) {
  if (i.encoding == Encoding::kDs) return !is_narrow_read(i);
  return i.encoding >= Encoding::kMfma || i.encoding == Encoding::kSmem || std::strcmp(i.form->name, "s_barrier") == 0;
}

bool decides(const Instruction& i) {
  return i.encoding == Encoding::kVopc || (i.form->flags & kWritesMask) != 0 ||
         i.mask_destination.kind == Operand::Kind::kScalar;
}

void mark_in_front(std::vector<Instruction>& code, std::size_t begin, const Instruction& read) {
  for (std::size_t at = begin; at-- > 0 && begin - at <= kLongest;) {
    Instruction& i = code[at];
    if (is_narrow_read(i) && i.form == read.form && i.sources[0].index == read.sources[0].index &&
        i.immediate == read.immediate) {
      i.polls = true;
    }
    if (is_work(i) || writes(i, read.sources[0])) return;
  }
}

void look_at_loop(std::vector<Instruction>& code, std::size_t begin, std::size_t end) {
  for (std::size_t at = begin; at <= end; ++at) {
    if (is_work(code[at])) return;
  }
  for (std::size_t at = begin; at <= end; ++at) {
    Instruction& read = code[at];
    if (!is_narrow_read(read)) continue;
    bool compared = false, moves = false;
    for (std::size_t other = begin; other <= end; ++other) {
      compared = compared || (decides(code[other]) && reads(code[other], read.destination));
      moves = moves || writes(code[other], read.sources[0]);
    }
    if (!compared || moves) continue;
    read.polls = true;
    mark_in_front(code, begin, read);
  }
}

}  // namespace

void mark_polling_reads(std::vector<Instruction>& code) {
  for (std::size_t at = 0; at < code.size(); ++at) {
    if (code[at].size == 0 || (code[at].form->flags & kBranch) == 0) continue;
    const std::size_t target = code[at].target;
    if (target <= at && at - target < kLongest) look_at_loop(code, target, at);
  }
}

}  // namespace msa_ops::emulator::gfx950

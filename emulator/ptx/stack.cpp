#include "stack.hpp"

#include <algorithm>
#include <string>

#include "../device/fault.hpp"

namespace msa_ops::emulator::ptx {
namespace {

constexpr std::uint64_t kStep = 4096;  // by which memory grows

}  // namespace

void Stack::reset() {
  tops_.fill(kEnd);
  if (!is_used_) return;
  is_used_ = false;
  for (auto& one : bytes_) one.clear();
  for (auto& one : written_) one.clear();
}

std::uint64_t Stack::take(unsigned lane, std::uint64_t bytes, std::uint64_t alignment) {
  if (alignment == 0 || (alignment & (alignment - 1)) != 0) {
    throw Violation{FaultKind::kMisaligned, "alloca with an alignment of " + std::to_string(alignment),
                    static_cast<int>(lane)};
  }
  const std::uint64_t left = tops_[lane] - (kEnd - kMostBytes);
  if (bytes > left || (tops_[lane] - bytes) / alignment * alignment < kEnd - kMostBytes) {
    throw Violation{FaultKind::kOutOfBounds,
                    "alloca of " + std::to_string(bytes) + " bytes; the thread's stack has " + std::to_string(left) + " left",
                    static_cast<int>(lane)};
  }
  const std::uint64_t top = (tops_[lane] - bytes) / std::max(alignment, kAlignment) * std::max(alignment, kAlignment);
  auto& memory = bytes_[lane];
  auto& written = written_[lane];
  const std::uint64_t used = kEnd - top, size = (used + kStep - 1) / kStep * kStep;
  if (memory.size() < size) {
    // Kept from the high end, so that addresses stay: what grows is at the low one.
    memory.insert(memory.begin(), size - memory.size(), std::byte{0});
    written.insert(written.begin(), size - written.size(), 0);
  }
  const auto at = [&](std::uint64_t address) {
    return static_cast<std::ptrdiff_t>(memory.size() - (kEnd - address));
  };
  std::fill(written.begin() + at(top), written.begin() + at(tops_[lane]), static_cast<unsigned char>(0));
  tops_[lane] = top;
  is_used_ = true;
  return top;
}

void Stack::give_back_to(unsigned lane, std::uint64_t top) {
  if (top < tops_[lane] || top > kEnd || top % kAlignment != 0) {
    throw Violation{FaultKind::kOutOfBounds, "stackrestore of what is no place in the stack above its top",
                    static_cast<int>(lane), top};
  }
  tops_[lane] = top;
}

std::byte* Stack::access(unsigned lane, std::uint64_t address, std::size_t bytes, bool write, const std::string& what) {
  const int who = static_cast<int>(lane);
  if (address < tops_[lane] || bytes > kEnd - address) {
    throw Violation{FaultKind::kOutOfBounds, what + "; the thread's stack begins at " + std::to_string(tops_[lane]), who,
                    address};
  }
  auto& written = written_[lane];
  const std::size_t start = written.size() - (kEnd - address);
  for (std::size_t at = start; at < start + bytes; ++at) {
    if (write) written[at] = 1;
    else if (written[at] == 0) {
      throw Violation{FaultKind::kUninitializedLocal, "read of a byte that the thread has not written", who, address};
    }
  }
  return &bytes_[lane][start];
}

}  // namespace msa_ops::emulator::ptx

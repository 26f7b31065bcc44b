#include "traffic.hpp"

#include <algorithm>

namespace msa_ops::emulator {

void Traffic::count(std::size_t offset, std::size_t bytes, bool write) {
  std::vector<std::uint64_t>& seen = write ? written_ : read_;
  if (seen.empty()) seen.resize((bytes_ + 63) / 64);
  std::uint64_t fresh = 0;
  for (std::size_t at = offset, end = offset + bytes; at < end;) {
    const std::size_t bit = at % 64, part = std::min<std::size_t>(64 - bit, end - at);
    const std::uint64_t mask = (part == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << part) - 1) << bit;
    std::uint64_t& word = seen[at / 64];
    fresh += static_cast<std::uint64_t>(__builtin_popcountll(mask & ~word));
    word |= mask;
    at += part;
  }
  (write ? counts_.written : counts_.read) += bytes;
  (write ? counts_.written_first : counts_.read_first) += fresh;
}

std::vector<std::pair<std::size_t, std::size_t>> Traffic::written() const {
  std::vector<std::pair<std::size_t, std::size_t>> made;
  for (std::size_t at = 0; at < written_.size() * 64; ++at) {
    if (at % 64 == 0 && written_[at / 64] == 0) {
      at += 63;
    } else if (at % 64 == 0 && ~written_[at / 64] == 0) {
      if (made.empty() || made.back().second != at) made.emplace_back(at, at);
      made.back().second = at + 64;
      at += 63;
    } else if ((written_[at / 64] >> at % 64 & 1) != 0) {
      if (!made.empty() && made.back().second == at) ++made.back().second;
      else made.emplace_back(at, at + 1);
    }
  }
  return made;
}

void Traffic::merge(const Traffic& other) {
  counts_.read += other.counts_.read;
  counts_.written += other.counts_.written;
  counts_.read_first += unite(read_, other.read_);
  counts_.written_first += unite(written_, other.written_);
}

// Returns how many bits are new.
std::uint64_t Traffic::unite(std::vector<std::uint64_t>& seen, const std::vector<std::uint64_t>& other) {
  if (other.empty()) return 0;
  if (seen.empty()) seen.resize(other.size());
  std::uint64_t fresh = 0;
  for (std::size_t i = 0; i < seen.size(); ++i) {
    fresh += static_cast<std::uint64_t>(__builtin_popcountll(other[i] & ~seen[i]));
    seen[i] |= other[i];
  }
  return fresh;
}

}  // namespace msa_ops::emulator

#include "same_values.hpp"

#include <algorithm>
#include <utility>

namespace msa_ops::emulator {

void SameValues::doubt(const std::byte* bytes, const unsigned char* written, unsigned char yes, std::size_t count,
                       Violation race) {
  doubts_.push_back({bytes, written, yes, {bytes, bytes + count}, std::move(race)});
}

void SameValues::settle() {
  const std::vector<Doubt> doubts = std::exchange(doubts_, {});
  for (const Doubt& one : doubts) {
    const std::size_t count = one.before.size();
    const bool still_written =
        one.written == nullptr ||
        std::all_of(one.written, one.written + count, [&](unsigned char mark) { return mark == one.yes; });
    if (!still_written || !std::equal(one.before.begin(), one.before.end(), one.bytes)) throw Violation(one.race);
  }
}

}  // namespace msa_ops::emulator

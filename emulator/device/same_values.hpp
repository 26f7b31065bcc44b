// Writes that nothing orders after other accesses of the same bytes, and that do no harm if they leave the bytes as they
// are: warps that store the same value in the same place, as compilers let them where a value is everybody's.
#pragma once

#include <cstddef>
#include <vector>

#include "fault.hpp"

namespace msa_ops::emulator {

class SameValues {
 public:
  bool empty() const { return doubts_.empty(); }
  // The present instruction is about to write bytes, all of which have values. `race` is what it does wrong if it
  // changes one of them. `written` is where the memory keeps whether bytes have values, `yes` for
  // those that have; null if all have.
  void doubt(const std::byte* bytes, const unsigned char* written, unsigned char yes, std::size_t count, Violation race);
  // After the instruction: throws the race of the first write that has changed something.
  void settle();
  void forget() { doubts_.clear(); }

 private:
  struct Doubt {
    const std::byte* bytes;
    const unsigned char* written;
    unsigned char yes;
    std::vector<std::byte> before;
    Violation race;
  };
  std::vector<Doubt> doubts_;
};

}  // namespace msa_ops::emulator

// Which bytes a view of memory covers: elements at any strides, without the gaps between them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace msa_ops::emulator {

class Footprint {
 public:
  struct Step {
    std::uint64_t stride, count;  // bytes from one to the next, and how many there are
  };
  // Bytes that lie beside each other: a run of them, or the gap between two.
  struct Segment {
    std::uint64_t first, end;  // offsets, end is one behind the last
    bool inside;               // a run
  };

  Footprint() = default;  // nothing
  // An element of so many bytes, repeated by each of the steps, whose order does not matter and whose copies may overlap.
  Footprint(std::uint64_t element, std::vector<Step> steps);

  bool has_gaps() const { return !levels_.empty(); }
  std::uint64_t bytes() const { return bytes_; }  // from the first to the last, with gaps
  std::uint64_t run() const { return run_; }      // bytes of a run
  std::vector<Step> steps() const;                // by which the run is repeated, ascending: as few as there can be
  // What holds the byte at this offset, which is below bytes(). A gap is whole; a run that another one continues need not be.
  Segment segment(std::uint64_t offset) const { return within(levels_.size(), offset); }
  // Whether all, or some, of these bytes are in runs.
  bool holds(std::uint64_t offset, std::uint64_t bytes) const;
  bool touches(std::uint64_t offset, std::uint64_t bytes) const;

 private:
  struct Level {
    std::uint64_t stride, count;
    std::uint64_t inner;  // bytes of what is repeated, with gaps
  };
  Segment within(std::size_t levels, std::uint64_t offset) const;

  std::uint64_t run_ = 0, bytes_ = 0;
  std::vector<Level> levels_;  // the outermost last
};

}  // namespace msa_ops::emulator

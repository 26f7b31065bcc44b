#include "footprint.hpp"

#include <algorithm>

namespace msa_ops::emulator {

Footprint::Footprint(std::uint64_t element, std::vector<Step> steps) {
  if (element == 0 || std::any_of(steps.begin(), steps.end(), [](const Step& one) { return one.count == 0; })) return;
  std::sort(steps.begin(), steps.end(), [](const Step& a, const Step& b) { return a.stride < b.stride; });
  run_ = bytes_ = element;
  for (const auto& [stride, count] : steps) {
    if (count == 1 || stride == 0) continue;
    if (levels_.empty() && stride <= run_) {
      run_ += (count - 1) * stride;
      bytes_ = run_;
      continue;
    }
    if (!levels_.empty()) {
      Level& outer = levels_.back();
      // What is repeated at a distance of some of its own copies is more copies.
      if (stride % outer.stride == 0 && stride / outer.stride <= outer.count) {
        outer.count += (count - 1) * (stride / outer.stride);
        bytes_ = (outer.count - 1) * outer.stride + outer.inner;
        continue;
      }
    }
    levels_.push_back({stride, count, bytes_});
    bytes_ += (count - 1) * stride;
  }
}

std::vector<Footprint::Step> Footprint::steps() const {
  std::vector<Step> made;
  for (const Level& level : levels_) made.push_back({level.stride, level.count});
  return made;
}

// One copy alone can hold a byte unless copies interlace, which hardly a view's do.
Footprint::Segment Footprint::within(std::size_t levels, std::uint64_t offset) const {
  if (levels == 0) return {0, run_, true};
  const auto& [stride, count, inner] = levels_[levels - 1];
  const std::uint64_t last = std::min(offset / stride, count - 1);
  Segment gap{0, last + 1 < count ? (last + 1) * stride : UINT64_MAX, false};
  std::uint64_t from = last;  // copies from here to the last one may hold it
  if (inner <= stride) {
    if (offset - last * stride >= inner) {
      gap.first = last * stride + inner;
      return gap;
    }
  } else {
    from = offset < inner ? 0 : (offset - inner) / stride + 1;
    if (from > 0) gap.first = (from - 1) * stride + inner;
  }
  for (std::uint64_t copy = from; copy <= last; ++copy) {
    const std::uint64_t start = copy * stride;
    const Segment found = within(levels - 1, offset - start);
    if (found.inside) return {found.first + start, found.end + start, true};
    gap.first = std::max(gap.first, found.first + start);
    gap.end = std::min(gap.end, found.end == UINT64_MAX ? found.end : found.end + start);
  }
  return gap;
}

bool Footprint::holds(std::uint64_t offset, std::uint64_t bytes) const {
  if (offset > bytes_ || bytes > bytes_ - offset) return false;
  for (std::uint64_t at = offset; at < offset + bytes;) {
    const Segment here = segment(at);
    if (!here.inside) return false;
    at = here.end;
  }
  return true;
}

bool Footprint::touches(std::uint64_t offset, std::uint64_t bytes) const {
  if (offset >= bytes_ || bytes == 0) return false;
  const Segment here = segment(offset);
  return here.inside || here.end - offset < bytes;
}

}  // namespace msa_ops::emulator

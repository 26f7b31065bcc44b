#include "tensor_copy.hpp"

#include <algorithm>
#include <cstring>
#include <string>

namespace msa_ops::emulator::ptx {
namespace {

constexpr unsigned kChunk = 16;  // bytes that stay together in every swizzle but the one that flips

bool is_packed(const TensorMap& map) { return map.element_bits() < 8; }

// What fills elements outside of the tensor: zeros, or a NaN of every format.
void fill(const TensorMap& map, std::byte* to, std::size_t bytes) {
  constexpr std::uint16_t kNan = 0x7ff7;
  std::memset(to, 0, bytes);
  for (std::size_t at = 0; map.nan_outside && at < bytes; at += sizeof(kNan)) std::memcpy(to + at, &kNan, sizeof(kNan));
}

std::uint32_t rounded_to_tf32(std::uint32_t bits) {
  if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fffe000;
  if ((bits & 0x7f800000) == 0x7f800000) return bits;
  return (bits + 0xfff + (bits >> 13 & 1)) & 0xffffe000;
}

// Some types change elements on their way into shared memory. What is marked as flushed keeps its subnormals on an H200.
void convert(TensorMap::Type type, std::byte* elements, std::size_t bytes) {
  if (type != TensorMap::Type::kTf32 && type != TensorMap::Type::kTf32Flush) return;
  for (std::size_t at = 0; at < bytes; at += sizeof(std::uint32_t)) {
    std::uint32_t bits;
    std::memcpy(&bits, elements + at, sizeof(bits));
    bits = rounded_to_tf32(bits);
    std::memcpy(elements + at, &bits, sizeof(bits));
  }
}

}  // namespace

Box::Box(const TensorMap& map, const Coordinates& first, const std::vector<std::int64_t>& rows,
         const std::array<std::int64_t, 3>& offsets)
    : map_(map), first_(first), rows_(rows), offsets_(offsets) {
  bytes_ = rows.empty() ? map.box_bytes() : map.row_bytes() * rows.size();
  const auto count = static_cast<std::int64_t>(map.count(0));
  const auto size = static_cast<std::int64_t>(map.sizes[0]);
  const std::int64_t from = std::max<std::int64_t>(0, -first[0]);
  const std::int64_t end = std::max<std::int64_t>(0, size - first[0]);
  first_inside_ = static_cast<std::uint32_t>(std::min(from, count));
  end_inside_ = static_cast<std::uint32_t>(std::clamp<std::int64_t>(end, first_inside_, count));
}

// From the first place on along width; behind the last place of a row on the first one of the next row, and so on.
void Box::for_pixels(const std::function<void(std::size_t, std::uint64_t, bool)>& function) const {
  const unsigned places = map_.corner_numbers(), number = map_.rank - 1;
  Coordinates at = first_;
  for (std::uint32_t pixel = 0; pixel < map_.pixels; ++pixel) {
    std::uint64_t address = map_.address;
    bool inside = true;
    for (unsigned i = 1; i < map_.rank; ++i) {
      const std::int64_t coordinate = at[i] + (i < number ? offsets_[i - 1] : 0);
      inside = inside && coordinate >= 0 && coordinate < static_cast<std::int64_t>(map_.sizes[i]);
      address += static_cast<std::uint64_t>(coordinate) * map_.strides[i];
    }
    function(pixel * map_.row_bytes(), address, inside);
    unsigned i = 0;
    for (; i < places; ++i) {
      at[1 + i] += map_.steps[1 + i];
      if (at[1 + i] <= map_.last_place(i)) break;
      at[1 + i] = map_.lower[i];
    }
    if (i == places) ++at[number];
  }
}

void Box::for_rows(const std::function<void(std::size_t, std::uint64_t, bool)>& function) const {
  if (map_.im2col) return for_pixels(function);
  std::size_t offset = 0;
  if (!rows_.empty()) {
    for (const std::int64_t row : rows_) {
      const bool inside = row >= 0 && row < static_cast<std::int64_t>(map_.sizes[1]);
      function(offset, map_.address + static_cast<std::uint64_t>(row) * map_.strides[1], inside);
      offset += map_.row_bytes();
    }
    return;
  }
  std::array<std::uint32_t, TensorMap::kMostDimensions> at{};
  for (;;) {
    std::uint64_t address = map_.address;
    bool inside = true;
    for (unsigned i = 1; i < map_.rank; ++i) {
      const std::int64_t coordinate = first_[i] + std::int64_t{at[i]} * map_.steps[i];
      inside = inside && coordinate >= 0 && coordinate < static_cast<std::int64_t>(map_.sizes[i]);
      address += static_cast<std::uint64_t>(coordinate) * map_.strides[i];
    }
    function(offset, address, inside);
    offset += map_.row_bytes();
    unsigned i = 1;
    for (; i < map_.rank; ++i) {
      if (++at[i] < map_.count(i)) break;
      at[i] = 0;
    }
    if (i >= map_.rank) return;
  }
}

std::uint64_t Box::element(std::uint64_t row, std::uint32_t index) const {
  const std::int64_t coordinate = first_[0] + std::int64_t{index};
  return row + static_cast<std::uint64_t>(coordinate * static_cast<std::int64_t>(map_.element_bits()) / 8);
}

void Box::for_ranges(const std::function<void(std::uint64_t, std::size_t)>& function) const {
  if (first_inside_ == end_inside_) return;
  for_rows([&](std::size_t, std::uint64_t row, bool inside) {
    if (!inside) return;
    const std::uint64_t from = element(row, first_inside_);
    std::uint64_t end = element(row, end_inside_ - 1) + map_.element_bits() / 8;
    if (is_packed(map_)) end = element(row, end_inside_);
    function(from, end - from);
  });
}

std::size_t Box::check(const GlobalMemory& global, bool write, int lane) {
  std::size_t touched = 0;
  for_ranges([&](std::uint64_t from, std::size_t bytes) {
    if (write) {
      shifts_.clear();
      for (const std::byte* to : global.targets(from, bytes, 1, lane)) {
        shifts_.push_back(to - reinterpret_cast<const std::byte*>(from));
      }
    } else {
      global.range(from, bytes, 1, write, lane);
    }
    touched += is_packed(map_) ? bytes : (end_inside_ - first_inside_) * (map_.element_bits() / 8);
  });
  return touched;
}

std::string problem_of(const TensorMap& map, const Box::Coordinates& first, bool stores) {
  if (!is_packed(map) && first[0] * static_cast<std::int64_t>(map.element_bits()) % 128 != 0) {
    return "coordinate " + std::to_string(first[0]) + " of dimension 0, which is no multiple of 16 bytes";
  }
  for (unsigned i = 0; i < map.rank && stores; ++i) {
    if (first[i] < 0) return "a store from coordinate " + std::to_string(first[i]) + " on, which is negative";
  }
  for (unsigned i = 0; map.im2col && i < map.corner_numbers(); ++i) {
    if (first[1 + i] < map.lower[i] || first[1 + i] > map.last_place(i)) {
      return "pixels from " + std::to_string(first[1 + i]) + " of dimension " + std::to_string(1 + i) +
             " on; the corners of the map are " + std::to_string(map.lower[i]) + " and " + std::to_string(map.last_place(i));
    }
    if (stores && map.lower[i] < 0) return "a store of pixels from a corner that is negative";
  }
  return "";
}

void load_box(const Box& box, std::byte* shared, std::uint64_t address) {
  const TensorMap& map = box.map();
  std::vector<std::byte> row_bytes(map.row_bytes());
  const std::size_t size = map.element_bits() / 8;
  box.for_rows([&](std::size_t offset, std::uint64_t row, bool inside) {
    const bool whole = inside && box.first_inside() == 0 && box.end_inside() == map.count(0);
    if (!whole) fill(map, row_bytes.data(), row_bytes.size());
    if (is_packed(map)) {
      // Sixteen elements at a time; what lies outside of the tensor is whole groups.
      for (std::uint32_t i = box.first_inside(); inside && i + 16 <= box.end_inside(); i += 16) {
        std::byte* to = row_bytes.data() + i / 16 * map.padded_bytes();
        std::memset(to, 0, map.padded_bytes());
        std::memcpy(to, reinterpret_cast<const std::byte*>(box.element(row, i)), map.packed_bytes());
      }
    } else if (inside) {
      std::memcpy(row_bytes.data() + box.first_inside() * size,
                  reinterpret_cast<const std::byte*>(box.element(row, box.first_inside())),
                  (box.end_inside() - box.first_inside()) * size);
      convert(map.type, row_bytes.data() + box.first_inside() * size, (box.end_inside() - box.first_inside()) * size);
    }
    for (std::size_t at = 0; at < row_bytes.size(); at += kChunk / 2) {
      const std::uint64_t place = box.place(address, offset + at);
      std::memcpy(shared + (place - address), row_bytes.data() + at, kChunk / 2);
    }
  });
}

void take_box(const Box& box, const std::byte* shared, std::uint64_t address, std::byte* out) {
  for (std::size_t at = 0; at < box.bytes(); at += kChunk / 2) {
    const std::uint64_t place = box.place(address, at);
    std::memcpy(out + at, shared + (place - address), kChunk / 2);
  }
}

void store_box(const Box& box, const std::byte* taken, Reduction reduction) {
  const TensorMap& map = box.map();
  const std::size_t size = map.element_bits() / 8;
  box.for_rows([&](std::size_t offset, std::uint64_t row, bool inside) {
    if (!inside) return;
    const std::byte* from = taken + offset;
    for (const std::ptrdiff_t shift : box.shifts()) {
      if (is_packed(map)) {
        for (std::uint32_t i = box.first_inside(); i + 16 <= box.end_inside(); i += 16) {
          std::memcpy(reinterpret_cast<std::byte*>(box.element(row, i)) + shift, from + i / 16 * map.padded_bytes(),
                      map.packed_bytes());
        }
        continue;
      }
      const std::uint32_t first = box.first_inside();
      const std::size_t bytes = (box.end_inside() - first) * size;
      auto* to = reinterpret_cast<std::byte*>(box.element(row, first)) + shift;
      if (reduction != nullptr) reduction(to, from + first * size, bytes);
      else std::memcpy(to, from + first * size, bytes);
    }
  });
}

}  // namespace msa_ops::emulator::ptx

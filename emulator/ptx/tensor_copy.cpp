#include "tensor_copy.hpp"

#include <algorithm>
#include <cstring>

namespace msa_ops::emulator::ptx {
namespace {

constexpr unsigned kChunk = 16;  // bytes that stay together in every swizzle but the one that flips

bool is_packed(const TensorMap& map) { return map.element_bits() < 8; }

// A pattern that fills elements outside of the tensor.
void fill(const TensorMap& map, std::byte* to, std::size_t bytes) {
  std::memset(to, 0, bytes);
  if (!map.nan_outside) return;
  const auto put = [&](std::uint64_t value, std::size_t size) {
    for (std::size_t at = 0; at < bytes; at += size) std::memcpy(to + at, &value, size);
  };
  switch (map.type) {
    case TensorMap::Type::kF16:
    case TensorMap::Type::kBf16: return put(0x7fff, 2);
    case TensorMap::Type::kF64: return put(0x7fffffffffffffff, 8);
    default: return put(0x7fffffff, 4);
  }
}

}  // namespace

Box::Box(const TensorMap& map, const Coordinates& first, const std::vector<std::int64_t>& rows)
    : map_(map), first_(first), rows_(rows) {
  bytes_ = rows.empty() ? map.box_bytes() : map.row_bytes() * rows.size();
  const auto count = static_cast<std::int64_t>(map.count(0));
  const auto size = static_cast<std::int64_t>(map.sizes[0]);
  const std::int64_t from = std::max<std::int64_t>(0, -first[0]);
  const std::int64_t end = std::max<std::int64_t>(0, size - first[0]);
  first_inside_ = static_cast<std::uint32_t>(std::min(from, count));
  end_inside_ = static_cast<std::uint32_t>(std::clamp<std::int64_t>(end, first_inside_, count));
}

void Box::for_rows(const std::function<void(std::size_t, std::uint64_t, bool)>& function) const {
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

std::size_t Box::check(const GlobalMemory& global, bool write, int lane) {
  std::size_t touched = 0;
  if (first_inside_ == end_inside_) return 0;
  for_rows([&](std::size_t, std::uint64_t row, bool inside) {
    if (!inside) return;
    const std::uint64_t from = element(row, first_inside_);
    std::uint64_t end = element(row, end_inside_ - 1) + map_.element_bits() / 8;
    if (is_packed(map_)) end = element(row, end_inside_);
    if (write) {
      shifts_.clear();
      for (const std::byte* to : global.targets(from, end - from, 1, lane)) {
        shifts_.push_back(to - reinterpret_cast<const std::byte*>(from));
      }
    } else {
      global.range(from, end - from, 1, write, lane);
    }
    touched += is_packed(map_) ? end - from : (end_inside_ - first_inside_) * (map_.element_bits() / 8);
  });
  return touched;
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
    }
    for (std::size_t at = 0; at < row_bytes.size(); at += kChunk / 2) {
      const std::uint64_t place = map.swizzled(address + offset + at);
      std::memcpy(shared + (place - address), row_bytes.data() + at, kChunk / 2);
    }
  });
}

void take_box(const Box& box, const std::byte* shared, std::uint64_t address, std::byte* out) {
  for (std::size_t at = 0; at < box.bytes(); at += kChunk / 2) {
    const std::uint64_t place = box.map().swizzled(address + at);
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

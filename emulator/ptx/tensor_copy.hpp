// The work of a copy between a box of a tensor and shared memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "../device/global_memory.hpp"
#include "../device/shared_memory.hpp"
#include "reduction.hpp"
#include "tensor_map.hpp"

namespace msa_ops::emulator::ptx {

// A box at these coordinates, as rows of dimension 0 in the order of shared memory.
class Box {
 public:
  using Coordinates = std::array<std::int64_t, TensorMap::kMostDimensions>;
  // With `rows` the box has one row for each of these coordinates of dimension 1 (gather and scatter). Of a map of pixels
  // it is a column of them that begins at `first`; `offsets` are added to the coordinates of each, from dimension 1 on.
  Box(const TensorMap& map, const Coordinates& first, const std::vector<std::int64_t>& rows = {},
      const std::array<std::int64_t, 3>& offsets = {});

  std::size_t bytes() const { return bytes_; }  // of all rows
  std::size_t extent() const { return bytes_ / map_.row_bytes() * map_.pitch(); }  // in shared memory
  // Where a byte of all rows is in shared memory that begins at `address`.
  std::uint64_t place(std::uint64_t address, std::size_t at) const {
    return map_.swizzled(address + at / map_.row_bytes() * map_.pitch() + at % map_.row_bytes());
  }
  // What an mbarrier counts: as many as narrow elements have in global memory.
  std::size_t transaction_bytes() const { return bytes_ * map_.packed_bytes() / map_.padded_bytes(); }
  const TensorMap& map() const { return map_; }
  // Calls function(offset among the bytes of all rows, address of coordinate 0, whether the row is inside the tensor in all other
  // dimensions) for each row.
  void for_rows(const std::function<void(std::size_t, std::uint64_t, bool)>& function) const;
  // Elements of every row inside the tensor: from, and up to but not including, these.
  std::uint32_t first_inside() const { return first_inside_; }
  std::uint32_t end_inside() const { return end_inside_; }
  // Address of an element (of sixteen of a packed type, whose bits are not whole bytes) of a row.
  std::uint64_t element(std::uint64_t row, std::uint32_t index) const;

  // Calls function(address, bytes) for what lies inside.
  void for_ranges(const std::function<void(std::uint64_t, std::size_t)>& function) const;
  // Bounds of all that lies inside, or a Violation of the lane; bytes of global memory that are touched. A multicast
  // address may be written.
  std::size_t check(const GlobalMemory& global, bool write, int lane);
  // What has to be added to an address of a box that is written, a device each; 0 if it is not a multicast one.
  const std::vector<std::ptrdiff_t>& shifts() const { return shifts_; }

 private:
  void for_pixels(const std::function<void(std::size_t, std::uint64_t, bool)>& function) const;

  TensorMap map_;
  Coordinates first_;
  std::vector<std::int64_t> rows_;
  std::array<std::int64_t, 3> offsets_;
  std::size_t bytes_ = 0;
  std::uint32_t first_inside_ = 0, end_inside_ = 0;
  std::vector<std::ptrdiff_t> shifts_{0};
};

// Why coordinates are not those of a box that is copied, or nothing; stores: out of shared memory. On an H200 the copy is an
// illegal instruction then.
std::string problem_of(const TensorMap& map, const Box::Coordinates& first, bool stores);

// Copies the box into the bytes of shared memory at `address`, zeros or NaN for what lies outside.
void load_box(const Box& box, std::byte* shared, std::uint64_t address);
// Takes the box's bytes out of shared memory, without swizzle.
void take_box(const Box& box, const std::byte* shared, std::uint64_t address, std::byte* out);
// Writes what lies inside into the tensor; `taken` as take_box left it. Combines if a reduction is given.
void store_box(const Box& box, const std::byte* taken, Reduction reduction);

}  // namespace msa_ops::emulator::ptx

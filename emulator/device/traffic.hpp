// What a launch read and wrote of one allocation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace msa_ops::emulator {

class Traffic {
 public:
  struct Counts {
    std::uint64_t read = 0;           // bytes, as often as they were asked for
    std::uint64_t read_first = 0;     // of them, those that were read for the first time
    std::uint64_t written = 0;
    std::uint64_t written_first = 0;
  };

  explicit Traffic(std::size_t bytes) : bytes_(bytes) {}
  void count(std::size_t offset, std::size_t bytes, bool write);
  void merge(const Traffic& other);  // of the same allocation
  const Counts& counts() const { return counts_; }
  // Ranges of bytes that were written, ascending: first, and one behind the last.
  std::vector<std::pair<std::size_t, std::size_t>> written() const;

 private:
  static std::uint64_t unite(std::vector<std::uint64_t>& seen, const std::vector<std::uint64_t>& other);

  std::size_t bytes_;
  Counts counts_;
  std::vector<std::uint64_t> read_, written_;  // a bit a byte, made at first use
};

}  // namespace msa_ops::emulator

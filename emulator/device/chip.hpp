// The chips that are emulated, as data.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace msa_ops::emulator {

struct Chip {
  std::string name;                      // also the target that compiles for exactly this chip
  unsigned major, minor;                 // compute capability
  unsigned multiprocessors;
  std::size_t shared_memory_a_block;     // bytes, with opt-in
  std::size_t static_shared_memory;      // bytes of it that a kernel may declare
  std::size_t shared_memory_a_multiprocessor;
  unsigned tensor_memory_columns;        // 0: it has none
  unsigned cluster_blocks = 16;          // most in a cluster
  unsigned threads_a_multiprocessor = 2048;
  unsigned blocks_a_multiprocessor = 32;
  unsigned threads_a_block = 1024;
  std::array<unsigned, 3> grid{2'147'483'647, 65'535, 65'535};
  std::array<unsigned, 3> block{1024, 1024, 64};
  unsigned portable_cluster_blocks = 8;  // unless the kernel was allowed more
  // Of a GPC, in which a cluster is; those of Hopper and later have 16 at least.
  unsigned multiprocessors_a_cluster = 16;

  // Whether PTX of this .target runs on it: sm_XY of its own or an earlier generation, sm_XYa of itself, sm_XYf of
  // its family.
  bool runs(const std::string& target) const;
};

const std::vector<Chip>& chips();
// Throws std::invalid_argument for a name that is not in the table.
const Chip& chip_of(const std::string& name);
// The same with another number of multiprocessors, if one is given.
Chip chip_of(const std::string& name, std::optional<unsigned> multiprocessors);

}  // namespace msa_ops::emulator

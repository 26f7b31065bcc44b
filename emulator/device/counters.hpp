// Exact counts of what a launch did.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace msa_ops::emulator {

struct Counters {
  // Instructions that a warp issued, by opcode; one whose guard was false in every lane counts too.
  std::map<std::string, std::uint64_t> warp_instructions;
  std::uint64_t global_bytes_read = 0;  // as lanes asked for them; an atomic reads and writes
  std::uint64_t global_bytes_written = 0;
  // Operations of matrix instructions, two a product that is added, by kind.
  std::map<std::string, std::uint64_t> matrix_flops;
  std::uint64_t launches = 0;
};

}  // namespace msa_ops::emulator

// Exact counts of what a launch did.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace msa_ops::emulator {

struct Counters {
  // Instructions that a warp issued, by opcode; one whose guard was false in every lane counts too.
  std::map<std::string, std::uint64_t> warp_instructions;
  std::uint64_t global_bytes_read = 0;  // as lanes asked for them; an atomic reads and writes
  std::uint64_t global_bytes_written = 0;
  // Operations of matrix instructions, two a product that is added, by kind.
  std::map<std::string, std::uint64_t> matrix_flops;
  // Of each allocation by its name, copies by the bulk and tensor engines included: bytes read, those read for the first
  // time in the launch, bytes written, those written for the first time.
  std::map<std::string, std::array<std::uint64_t, 4>> tensor_bytes;
  // Loads and stores of global memory that warps issued with some lane, and the 32-byte sectors that they touched.
  std::uint64_t global_requests = 0;
  std::uint64_t global_sectors = 0;
  // Loads and stores of shared memory: passes over the 32 banks that they took, and those that no conflict would take.
  std::uint64_t shared_passes = 0;
  std::uint64_t shared_passes_at_least = 0;
  std::uint64_t waits = 0;  // times that a warp waited for others: at a barrier, an mbarrier, a cluster barrier
  // gfx950: times that a wave had to wait, by what for: barrier, vmcnt, lgkmcnt.
  std::map<std::string, std::uint64_t> waits_for;
  std::map<unsigned, std::uint64_t> instructions_of_warp;  // by the warp's number in its block
  std::map<unsigned, std::uint64_t> waits_of_warp;
  // Bytes read and written by space: "shared" of the block itself, "cluster": that of another block, "local", "tensor"
  // (loads, stores and copies). Operands that matrix instructions take from memory by themselves are not in it.
  std::map<std::string, std::array<std::uint64_t, 2>> bytes_by_space;
  std::uint64_t out_of_range_lanes = 0;  // gfx950: lanes whose access a buffer resource did not hold
  std::uint64_t launches = 0;
  // Addresses that the last launch wrote: first ones, and one behind the last each.
  std::vector<std::pair<std::uint64_t, std::uint64_t>> last_writes;
};

}  // namespace msa_ops::emulator

// What the device model asks of an instruction set: a kernel that makes warps, and warps that run.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "counters.hpp"
#include "fault.hpp"
#include "progress.hpp"

namespace msa_ops::emulator {

class ThreadBlock;

class WarpProgram {
 public:
  enum class State {
    kReady,
    kYielded,  // ready, but others should go on first: it polls
    kWaiting,  // until its block lets it go on (ThreadBlock::waits)
    kDone,
  };

  virtual ~WarpProgram() = default;
  // At the first instruction, in the block's present index.
  virtual void start() = 0;
  // Executes at most so many instructions; adds those executed to `executed`. Throws Fault.
  virtual State run(std::uint64_t instructions, std::uint64_t& executed) = 0;
  virtual Place place() const = 0;
  // Where it keeps the number of its present instruction.
  virtual const std::uint32_t* pc() const { return nullptr; }
  virtual void add_to(Counters& counters) const = 0;
  // What is known of it while the counts of changes are these; if it loops, where and by what it reads (nothing: it waits).
  virtual Rest rest(const Changes&) const { return Rest::kNone; }
  virtual std::string describe_loop(const Changes&) const { return ""; }
  virtual Place place_of_loop(const Changes&) const { return place(); }
  // Its wait has been ended without success.
  virtual void note_time_out() {}
  // Where it polls (ThreadBlock::poll): what for.
  virtual std::string describe_poll() const { return "something"; }
  // Lanes that have waited where they meet others of their warp again since then (Cluster::elapsed) or longer go on alone,
  // as threads of a chip may. False if there are none.
  virtual bool release_lanes(std::uint64_t) { return false; }
};

class Program {
 public:
  virtual ~Program() = default;
  virtual const std::string& name() const = 0;
  virtual unsigned warp_size() const = 0;
  virtual std::uint64_t shared_base() const = 0;          // address of the first byte of shared memory
  // Addresses of the shared memory of a cluster's block `rank` are those of block 0 + (rank << rank_shift).
  virtual unsigned rank_shift() const { return 24; }
  // Whether its accesses of global memory are compared (GlobalOrder).
  virtual bool orders_global_memory() const { return false; }
  // Registers of a thread at the start, of a kernel whose warps may change them; 0: none does, or it is not known.
  virtual unsigned registers_a_thread() const { return 0; }
  virtual std::size_t static_shared_memory() const = 0;   // bytes that the kernel declares
  virtual std::size_t local_memory() const { return 0; }  // bytes that it declares a thread
  // Line, text and source of an instruction by its number; 0 and nothing where the instruction set does not say.
  virtual int line_of(std::uint32_t) const { return 0; }
  virtual std::string text_of(std::uint32_t) const { return ""; }
  virtual SourcePlace source_of(std::uint32_t) const { return {}; }
  // What lines are counted in, or null.
  virtual std::shared_ptr<const std::string> program_text() const { return nullptr; }
  // For messages: "line 12 (kernel.py:34)", or "line 12"; "" without a line.
  std::string where(std::uint32_t pc) const;
  Place place_of(std::uint32_t pc, const std::array<unsigned, 3>& block, int warp) const;
  // Warp `index` of a block, with the first `lanes` of its lanes alive. Both references must outlive it.
  virtual std::unique_ptr<WarpProgram> make_warp(ThreadBlock& block, unsigned index, unsigned lanes) const = 0;
};

}  // namespace msa_ops::emulator

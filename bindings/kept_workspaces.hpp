// Workspaces that calls took from the framework's allocator, kept for later calls in the same stream: taking one and
// dropping it again costs the host as much as the launch of a graph.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "call_signature.hpp"

namespace msa_ops {

// Used by threads that hold the interpreter.
class KeptWorkspaces {
 public:
  static constexpr std::int64_t kMostBytes = std::int64_t{128} << 20;  // of one device
  static constexpr std::size_t kMostWorkspaces = 16;

  // The process's one.
  static KeptWorkspaces& instance();

  struct Workspace {
    SignatureReader::Scratch memory;
    int device;
    std::uintptr_t stream;
    std::int64_t num_bytes;
  };

  // The smallest kept one of the stream that is large enough, which is the caller's now; its memory is null if there is none.
  Workspace take(int device, std::uintptr_t stream, std::int64_t num_bytes);
  // Keeps a workspace whose launches have been made, and drops those that were given back the longest time ago.
  void give_back(Workspace workspace);
  // Drops all of them.
  void clear() { kept_.clear(); }

 private:
  std::vector<Workspace> kept_;  // given back last at the end
};

}  // namespace msa_ops

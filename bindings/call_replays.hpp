// Calls of one op that were made before with equal metadata: found by one look-up and launched again from C++.
//
// What a compiled backend launches follows from the call's metadata, but for the addresses of its tensors. So the
// launches of a first call, with the places of these addresses, serve all later calls of the same signature.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "call_signature.hpp"

namespace msa_ops {

// One kernel launch; `addresses` says which of the values are addresses, and of which tensor of the call.
struct ReplayedLaunch {
  int position;
  std::vector<std::int64_t> values;
  std::vector<std::pair<std::size_t, std::size_t>> addresses;
};

class CallReplays {
 public:
  // `names`: the op's parameters in order; `written`: those that it writes. `alignment` as for SignatureReader::read.
  CallReplays(const SignatureReader& reader, std::vector<std::string> names, std::vector<std::string> written,
              std::int64_t alignment);

  // Launches what a call of this signature launched before, and returns True. None if there was none, or the call is
  // not for the short way; else, if results or a workspace have to be made, what was given to `remember` as `missing`.
  // outs: a tuple of tensors or None. wish: name of the backend asked for, or None. Remembered calls of another
  // `generation` are forgotten.
  pybind11::object run(const pybind11::tuple& args, const pybind11::dict& kwargs, pybind11::handle outs,
                       pybind11::handle wish, bool grad_enabled, std::int64_t generation);

  // The same once they are made; for a call that `run` has just answered.
  void run_with(const pybind11::tuple& args, const pybind11::dict& kwargs, pybind11::handle outs,
                pybind11::handle wish, bool grad_enabled, const pybind11::tuple& made, pybind11::handle made_workspace);

  // Keeps the launches of a call. launches: (position, values) each, where an address is a value with an attribute
  // `tensor`. made: results if `outs` is None; made_workspace: a tensor or None. missing: None if nothing was made.
  // Returns False, and keeps nothing, if an address cannot be told to be one tensor's and no other's.
  bool remember(const pybind11::tuple& args, const pybind11::dict& kwargs, pybind11::handle outs,
                pybind11::handle wish, bool grad_enabled, std::int64_t generation, const pybind11::tuple& made,
                pybind11::handle made_workspace, int device, const pybind11::list& launches, pybind11::object missing);

  std::size_t size() const { return calls_.size(); }

 private:
  struct Call {
    int device;
    std::vector<ReplayedLaunch> launches;
    pybind11::object missing;
  };
  // Reads a call; false if it is not for the short way.
  bool read(const pybind11::tuple& args, const pybind11::dict& kwargs, pybind11::handle outs, pybind11::handle wish,
            bool grad_enabled, std::string& bytes, std::vector<SignatureReader::Span>& spans) const;
  void launch(const Call& call, const std::vector<SignatureReader::Span>& spans) const;

  const SignatureReader& reader_;
  std::vector<std::string> names_;
  std::vector<std::string> written_;
  std::int64_t alignment_;
  std::int64_t generation_ = 0;
  std::unordered_map<std::string, Call> calls_;
};

}  // namespace msa_ops

// Calls of one op that were made before with equal metadata: found by one look-up and launched again from C++.
//
// What a compiled backend launches follows from the call's metadata, but for the addresses of its tensors. So the
// launches of a first call, with the places of these addresses, serve all later calls of the same signature.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "call_signature.hpp"

namespace msa_ops {

// One kernel launch; `addresses` says which of the values are addresses, of which tensor of the call, and how far behind
// its first element.
struct ReplayedLaunch {
  struct Address {
    std::size_t place;
    std::size_t tensor;
    std::int64_t offset;
  };
  int position;
  std::vector<std::int64_t> values;
  std::vector<Address> addresses;
};

class CallReplays {
 public:
  // `names`: the op's parameters in order; `written`: those that it writes. `alignment` as for SignatureReader::read.
  // `obstacles`: callables without arguments; while one of them gives something true, no call is for the short way.
  CallReplays(const SignatureReader& reader, std::vector<std::string> names, std::vector<std::string> written,
              std::int64_t alignment, const pybind11::list& obstacles);

  // Launches what a call of this signature launched before, and returns True. None if there was none, or the call is
  // not for the short way; else, if results have to be made, what was given to `remember` as `missing`. A workspace that
  // the first call had to make is taken from the framework's allocator for the length of the launch.
  // outs: a tuple of tensors or None. wish: name of the backend asked for, or None. Remembered calls of another
  // `generation` are forgotten.
  pybind11::object run(const pybind11::tuple& args, const pybind11::dict& kwargs, pybind11::handle outs,
                       pybind11::handle wish, bool grad_enabled, std::int64_t generation);

  // The same once results are made, for a call that `run` has just answered. False if it has to go the long way.
  bool run_with(const pybind11::tuple& args, const pybind11::dict& kwargs, pybind11::handle outs, pybind11::handle wish,
                bool grad_enabled, const pybind11::tuple& made);

  // Keeps the launches of a call. launches: (position, values) each, where an address is a value with an attribute
  // `tensor`. made: results if `outs` is None; made_workspace: a tensor or None. missing: None if no result was made.
  // Returns False, and keeps nothing, if an address cannot be told to be one tensor's and no other's.
  bool remember(const pybind11::tuple& args, const pybind11::dict& kwargs, pybind11::handle outs,
                pybind11::handle wish, bool grad_enabled, std::int64_t generation, const pybind11::tuple& made,
                pybind11::handle made_workspace, int device, const pybind11::list& launches, pybind11::object missing);

  std::size_t size() const { return calls_.size(); }

 private:
  struct Call {
    int device;
    std::vector<ReplayedLaunch> launches;
    std::int64_t workspace_bytes;  // 0 if the call makes no workspace
    pybind11::object missing;
  };
  using Spans = std::vector<SignatureReader::Span>;
  // Reads a call; false if it is not for the short way.
  bool read(const pybind11::tuple& args, const pybind11::dict& kwargs, pybind11::handle outs, pybind11::handle wish,
            bool grad_enabled, std::string& bytes, Spans& spans) const;
  // False if there is no memory for the workspace.
  bool launch(const Call& call, Spans& spans) const;

  const SignatureReader& reader_;
  std::vector<std::string> names_;
  std::vector<std::string> written_;
  std::int64_t alignment_;
  std::vector<pybind11::object> obstacles_;
  std::int64_t generation_ = 0;
  std::unordered_map<std::string, std::shared_ptr<const Call>> calls_;
};

}  // namespace msa_ops

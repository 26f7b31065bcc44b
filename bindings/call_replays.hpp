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
#include "kept_workspaces.hpp"
#include "launch_graph.hpp"
#include "result_maker.hpp"

namespace msa_ops {

// One launch, as KernelLauncher takes it; `addresses` says which of the values are addresses, of which tensor of the call, and how far behind
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

// The values of a call in the order of the op's parameters, then its results if they are given (a tensor, a tuple of
// tensors, or None) and the name of the backend that is asked for. Null where the call gives nothing.
struct CallValues {
  static constexpr std::size_t kMost = 48;
  PyObject* parameters[kMost];
  PyObject* outs;
  PyObject* wish;
};

class CallReplays {
 public:
  // `names`: the op's parameters in order; `written`: those that it writes. `alignment` as for SignatureReader::read.
  CallReplays(const SignatureReader& reader, std::vector<std::string> names, const std::vector<std::string>& written,
              std::int64_t alignment);

  // The values of a call in `values`; false if it is none of this op's calls. `outs` and `wish` are taken from the
  // keywords "out" and "backend".
  bool arrange(PyObject* const* args, std::size_t num_args, PyObject* keywords, CallValues& values);

  // Launches what a call of this signature launched before. The results, as a new reference: what is given, or what had
  // to be made, alone or in a tuple. Null, without an exception, if there was no such call, or if it is not for the
  // short way; null with one if a launch failed. A workspace that the first call had to make is one that is
  // kept for the stream, or taken from the framework's allocator. Remembered calls of another `generation` are forgotten.
  PyObject* run(const CallValues& values, bool grad_enabled, std::int64_t generation);

  // Keeps the launches of a call. outs: a tuple of tensors or None. launches: (position, values) each, where an address
  // is a value with an attribute `tensor`. made: results if `outs` is None; made_workspace: a tensor or None. make: a
  // ResultMaker, or a callable that gives such results anew, in a tuple; None if no result was made. Returns False, and keeps nothing, if an address cannot be
  // told to be one tensor's and no other's.
  bool remember(const pybind11::tuple& args, const pybind11::dict& kwargs, pybind11::handle outs,
                pybind11::handle wish, bool grad_enabled, std::int64_t generation, const pybind11::tuple& made,
                pybind11::handle made_workspace, int device, const pybind11::list& launches, pybind11::object make);

  // The place of a parameter; kOut and kWish for the two keywords that are no parameters, kUnknown for others.
  int place_of(PyObject* name) const;
  static constexpr int kOut = -1, kWish = -2, kUnknown = -3;

  std::size_t size() const { return calls_.size(); }

 private:
  struct Call {
    int device;
    std::vector<ReplayedLaunch> launches;
    std::int64_t workspace_bytes;  // 0 if the call makes no workspace
    std::shared_ptr<ResultMaker> maker;  // makes the results, if it can
    pybind11::object make;
    std::unique_ptr<LaunchGraphs> graphs;
  };
  // What is read of a call. Threads keep theirs, so that reading allocates nothing.
  struct Reading {
    std::string bytes;
    std::vector<SignatureReader::Span> spans;
    std::vector<std::uintptr_t> addresses;
    std::vector<Launch> launches;
  };
  class BorrowedReading;
  // Reads a call; false if it is not for the short way.
  bool read(const CallValues& values, bool grad_enabled, Reading& reading) const;
  std::shared_ptr<const Call> find(const std::string& bytes);
  void forget();
  // Results of the call's callable in a tuple, their spans behind those read; None if they cannot be described.
  pybind11::object make_by_python(const Call& call, Reading& reading) const;
  // Counts graphs that were made; those that were not used for the longest time are given up.
  void make_room(std::size_t grew);
  // Its memory is null if the call makes none, or if there is no memory. `plain`: the stream is not captured; what is
  // captured keeps its workspace, so that one is of the capture's own memory.
  KeptWorkspaces::Workspace workspace_of(const Call& call, std::uintptr_t stream, bool plain) const;
  // Makes the results first, if the call has a maker. False if there is no memory for them or for the workspace; throws if
  // a launch fails.
  bool launch(const Call& call, Reading& reading, ResultMaker::Made& results);

  // The places of a call's keywords. A tuple of keywords is a constant of the code that calls, and is kept.
  struct Keywords {
    pybind11::object names;
    std::vector<int> places;
  };

  const SignatureReader& reader_;
  std::vector<pybind11::str> names_;
  std::vector<bool> written_;
  std::int64_t alignment_;
  std::vector<Keywords> keywords_;
  std::int64_t generation_ = 0;
  using Calls = std::unordered_map<std::string, std::shared_ptr<const Call>>;
  Calls calls_;
  std::size_t graphs_ = 0;  // at most so many executable graphs are there
  const Calls::value_type* last_ = nullptr;  // found last: a loop asks for the same
};

}  // namespace msa_ops

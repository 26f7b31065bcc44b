// The callable that user calls of an op in plain eager mode go through: the short way if there is one, else the long.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>

#include "call_replays.hpp"
#include "torch_state.hpp"

namespace msa_ops {

// A Python callable of an op's parameters, `out` and `backend`.
//
// replays: the CallReplays of the op. long_way: called with the same arguments if the call is not for the short way.
// context: a ContextVar; a true value bars the short way. registry: its `generation` says which remembered calls still
// count. state: no call is for the short way while it is not plain.
pybind11::object op_entry(pybind11::object replays, pybind11::object long_way, pybind11::object context,
                          pybind11::object registry, std::shared_ptr<TorchState> state);

}  // namespace msa_ops

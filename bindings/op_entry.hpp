// The callable that user calls of an op in plain eager mode go through: the short way if there is one, else the long.
#pragma once

#include <pybind11/pybind11.h>

#include "call_replays.hpp"

namespace msa_ops {

// A Python callable of an op's parameters, `out` and `backend`.
//
// replays: the CallReplays of the op. long_way: called with the same arguments if the call is not for the short way.
// obstacles: callables without arguments; while one of them gives something true, no call is for the short way.
// context: a ContextVar; a true value bars the short way too. registry: its `generation` says which remembered calls
// still count. grad_enabled: a callable that tells.
pybind11::object op_entry(pybind11::object replays, pybind11::object long_way, const pybind11::list& obstacles,
                          pybind11::object context, pybind11::object registry, pybind11::object grad_enabled);

}  // namespace msa_ops

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

// For callers that arrange a call's values themselves.
struct OpEntry;
// What is behind a callable that `op_entry` made, and lives as long; throws std::invalid_argument for others.
const OpEntry& entry_of(const pybind11::object& callable);
// Whether any call may go the short way.
bool has_short_way(const OpEntry& entry);
// Its results, as a new reference, by the short way. Null if there is none, or with an exception if `failed`.
PyObject* call_short_way(const OpEntry& entry, const CallValues& values, bool& failed);
// The place of a parameter of the op, below 0 if it has none of this name.
int place_in_op(const OpEntry& entry, const pybind11::str& name);

}  // namespace msa_ops

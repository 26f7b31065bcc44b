// Calls of an op's public function, which is written in Python, that need no frame of Python.
#pragma once

#include <pybind11/pybind11.h>

namespace msa_ops {

// Makes calls of `function` go the short way of `entry`, which `op_entry` made, where there is one; all others, and those
// that Python's interpreter is asked to show (by a frame evaluator, as torch.compile's), run the function as it is.
//
// The function hands its arguments on by their names, to parameters of the op, and `out` and `backend`, as they are. With a
// parameter `return_lse` it gives the first of two results if that is False, and takes an `out` that is one tensor itself.
// Returns false, and changes nothing, where Python has no such means (before 3.12) or the function is not of this kind.
bool call_without_frames(pybind11::object function, pybind11::object entry);

}  // namespace msa_ops

// Objects that CuTe-DSL exported and that are not in this build, for Python: see msa_ops/emulator/compiled_object.py.
#pragma once

#include <pybind11/pybind11.h>

namespace msa_ops {

void add_objects(pybind11::module_& m);

}  // namespace msa_ops

// What Python sees of the emulator.
#pragma once

#include <pybind11/pybind11.h>

namespace msa_ops {

void add_emulator(pybind11::module_& m);
void add_gfx950(pybind11::module_& m);  // after it

}  // namespace msa_ops

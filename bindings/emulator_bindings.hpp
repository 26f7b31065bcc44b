// What Python sees of the emulator.
#pragma once

#include <pybind11/pybind11.h>

namespace msa_ops {

void add_emulator(pybind11::module_& m);

}  // namespace msa_ops

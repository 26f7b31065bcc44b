// Kernels that a compiler in this process made, on the emulator: EmulatorSession.
#pragma once

#include <pybind11/pybind11.h>

namespace msa_ops {

void add_sessions(pybind11::module_& m);

}  // namespace msa_ops

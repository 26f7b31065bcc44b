// What Python sees of AMD code objects.
#pragma once

#include <pybind11/pybind11.h>

namespace msa_ops {

void add_code_objects(pybind11::module_& m);

}  // namespace msa_ops

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "cuda_driver.hpp"

namespace py = pybind11;

PYBIND11_MODULE(_C, m) {
  m.doc() = "Native part of msa_ops.";

  py::class_<msa_ops::CudaDevice>(m, "CudaDevice")
      .def_readonly("ordinal", &msa_ops::CudaDevice::ordinal)
      .def_readonly("name", &msa_ops::CudaDevice::name)
      .def_readonly("major", &msa_ops::CudaDevice::major)
      .def_readonly("minor", &msa_ops::CudaDevice::minor)
      .def_readonly("multiprocessors", &msa_ops::CudaDevice::multiprocessors)
      .def_readonly("shared_memory_per_block_optin", &msa_ops::CudaDevice::shared_memory_per_block_optin);

  py::class_<msa_ops::CudaDriver>(m, "CudaDriver")
      .def_readonly("version", &msa_ops::CudaDriver::version)
      .def_readonly("error", &msa_ops::CudaDriver::error)
      .def_readonly("devices", &msa_ops::CudaDriver::devices);

  m.def("query_cuda_driver", &msa_ops::query_cuda_driver, py::call_guard<py::gil_scoped_release>(),
        "Driver version and devices, without creating a context; `error` tells why there are none.");
}

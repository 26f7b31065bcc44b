#include "code_object_bindings.hpp"

#include <pybind11/stl.h>

#include "code_objects.hpp"

namespace py = pybind11;

namespace msa_ops {

void add_code_objects(py::module_& m) {
  m.def(
      "code_objects",
      [] {
        std::vector<std::pair<std::string, std::string>> names;
        for (const auto& object : code_objects()) names.emplace_back(object.name, object.arch);
        return names;
      },
      "(name, arch) of every AMD code object in this build.");
  m.def("find_code_object", &find_code_object, py::arg("name"), "Position of a code object; IndexError if not built.");
  m.def(
      "code_object",
      [](int position) {
        const CodeObject& object = code_objects().at(position);
        py::dict found;
        found["name"] = object.name;
        found["arch"] = object.arch;
        found["kernel"] = object.kernel;
        found["code"] = py::bytes(reinterpret_cast<const char*>(object.code), object.code_bytes);
        found["threads"] = object.threads;
        return found;
      },
      py::arg("position"), "Name, arch, kernel symbol, bytes and block size of a code object.");
  m.def(
      "kernel_arguments",
      [](int position, const std::vector<std::int64_t>& values) {
        const auto segment = kernel_arguments(code_objects().at(position), values);
        return py::bytes(reinterpret_cast<const char*>(segment.data()), segment.size());
      },
      py::arg("position"), py::arg("values"), "The kernel argument segment for these values.");
  m.def("launch_code_object", &launch_code_object, py::arg("position"), py::arg("device"), py::arg("stream"),
        py::arg("num_workgroups"), py::arg("values"), py::call_guard<py::gil_scoped_release>(),
        "Launches on a HIP device; RuntimeError names kernel and cause.");
}

}  // namespace msa_ops

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "call_replays.hpp"
#include "call_signature.hpp"
#include "code_object_bindings.hpp"
#include "compiled_kernels.hpp"
#include "cuda_driver.hpp"
#include "emulator_bindings.hpp"
#include "object_bindings.hpp"
#include "op_entry.hpp"
#include "public_function.hpp"
#include "result_maker.hpp"
#include "session_bindings.hpp"
#include "torch_state.hpp"

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

  py::class_<msa_ops::RecordedLaunch>(m, "RecordedLaunch")
      .def_readonly("kernel", &msa_ops::RecordedLaunch::kernel)
      .def_readonly("grid", &msa_ops::RecordedLaunch::grid)
      .def_readonly("block", &msa_ops::RecordedLaunch::block)
      .def_readonly("cluster", &msa_ops::RecordedLaunch::cluster)
      .def_readonly("dynamic_shared_memory", &msa_ops::RecordedLaunch::dynamic_shared_memory);

  m.def(
      "compiled_kernels",
      [] {
        std::vector<std::pair<std::string, std::string>> names;
        for (const auto& kernel : msa_ops::compiled_kernels()) names.emplace_back(kernel.name, kernel.arch);
        return names;
      },
      "(name, arch) of every kernel in this build.");
  m.def("find_kernel", &msa_ops::find_kernel, py::arg("name"), "Position of a kernel; IndexError if it is not built.");
  m.def(
      "launch_kernel",
      [](int position, int device, std::uintptr_t stream, const std::vector<std::int64_t>& arguments) {
        msa_ops::LaunchValues values(arguments);
        const py::gil_scoped_release release;
        msa_ops::KernelLauncher(device, stream).launch(position, values);
      },
      py::arg("position"), py::arg("device"), py::arg("stream"), py::arg("arguments"),
      "Launches a kernel on a CUDA device; RuntimeError names kernel and cause.");
  m.def(
      "clear_memory",
      [](int device, std::uintptr_t stream, std::uint64_t address, std::size_t num_bytes) {
        msa_ops::LaunchValues values({static_cast<std::int64_t>(address), static_cast<std::int64_t>(num_bytes)});
        const py::gil_scoped_release release;
        msa_ops::KernelLauncher(device, stream).launch(msa_ops::kClear, values);
      },
      py::arg("device"), py::arg("stream"), py::arg("address"), py::arg("num_bytes"),
      "Zeros memory of a CUDA device in the order of a stream; RuntimeError names the cause.");
  m.attr("CLEAR") = msa_ops::kClear;
  m.def("record_launch", &msa_ops::record_launch, py::arg("position"), py::arg("arguments"),
        "What the kernel's host launcher would launch for these arguments; needs no device.");

  py::class_<msa_ops::SignatureReader>(m, "SignatureReader")
      .def(py::init<py::object, py::object>(), py::arg("tensor_type"), py::arg("parameter_type"))
      .def("read", &msa_ops::SignatureReader::read, py::arg("record"), py::arg("names"), py::arg("written"), py::arg("outs"),
           py::arg("alignment"), py::arg("grad_enabled"),
           "The call's metadata as bytes, or None if it is not a plain call.");

  py::class_<msa_ops::CallReplays>(m, "CallReplays")
      .def(py::init<const msa_ops::SignatureReader&, std::vector<std::string>, const std::vector<std::string>&,
                    std::int64_t>(),
           py::keep_alive<1, 2>(), py::arg("reader"), py::arg("names"), py::arg("written"), py::arg("alignment"))
      .def("remember", &msa_ops::CallReplays::remember, "Keeps the launches of a call; False if that is not possible.")
      .def("__len__", &msa_ops::CallReplays::size);

  py::class_<msa_ops::ResultMaker, std::shared_ptr<msa_ops::ResultMaker>>(m, "ResultMaker")
      .def_static("of", &msa_ops::ResultMaker::of, py::arg("results"),
                  "What makes tensors like these; None if torch's libraries lack a function, or for tensors of other devices.")
      .def(
          "make",
          [](const msa_ops::ResultMaker& maker) -> py::object {
            std::vector<msa_ops::SignatureReader::Span> spans;
            msa_ops::ResultMaker::Made made;
            {
              const py::gil_scoped_release released;
              if (!maker.make(made, spans)) return py::none();
            }
            const py::object results = maker.wrap(made);
            return py::isinstance<py::tuple>(results) ? results : py::make_tuple(results);
          },
          "A tuple of tensors whose values are not set; None if there is no memory.");

  py::class_<msa_ops::TorchState, std::shared_ptr<msa_ops::TorchState>>(m, "TorchState")
      .def(py::init<py::list, py::object>(), py::arg("obstacles"), py::arg("grad_enabled"))
      .def_static("without_python", &msa_ops::TorchState::without_python,
                  "The same asked of torch's libraries; None if they lack a function.")
      .def("is_plain", &msa_ops::TorchState::is_plain, "Whether calls of ops may go straight to the registry.")
      .def("grad_enabled", &msa_ops::TorchState::grad_enabled);
  m.def("op_entry", &msa_ops::op_entry, py::arg("replays"), py::arg("long_way"), py::arg("context"),
        py::arg("registry"), py::arg("state"),
        "A callable that launches calls made before, and gives others to `long_way`.");
  m.def("call_without_frames", &msa_ops::call_without_frames, py::arg("function"), py::arg("entry"),
        "Calls of a public function that the entry can launch need no frame of Python; False where that cannot be.");

  msa_ops::add_emulator(m);
  msa_ops::add_gfx950(m);
  msa_ops::add_objects(m);
  msa_ops::add_sessions(m);
  msa_ops::add_code_objects(m);
}

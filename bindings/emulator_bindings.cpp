#include "emulator_bindings.hpp"

#include <pybind11/stl.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "allocations.hpp"
#include "compiled_kernels.hpp"
#include "device/interrupt.hpp"
#include "device/progress.hpp"
#include "emulator_runtime.hpp"
#include "ptx/approximate.hpp"
#include "ptx/error.hpp"
#include "ptx/features.hpp"
#include "ptx/execute.hpp"
#include "ptx/opcodes.hpp"
#include "ptx/tensor_map.hpp"

namespace py = pybind11;

namespace msa_ops {
namespace {

// Without a cluster: of single blocks, or what the kernel demands.
emulator::LaunchShape shape_of(const std::array<unsigned, 3>& grid, const std::array<unsigned, 3>& block,
                               std::size_t shared_memory, const std::optional<std::array<unsigned, 3>>& cluster,
                               bool not_portable) {
  emulator::LaunchShape shape{grid, block, shared_memory, cluster.value_or(std::array<unsigned, 3>{1, 1, 1})};
  shape.asks_for_cluster = cluster.has_value();
  shape.may_be_not_portable = not_portable;
  return shape;
}

emulator::Counters emulate_ptx(const std::string& ptx, const std::string& entry, std::array<unsigned, 3> grid,
                               std::array<unsigned, 3> block, std::size_t shared_memory,
                               const std::vector<py::bytes>& parameters,
                               const std::vector<AllocationTuple>& allocations, std::uint64_t max_instructions,
                               std::optional<std::array<unsigned, 3>> cluster, const std::string& chip,
                               std::optional<std::uint64_t> seed,
                               std::optional<std::uint64_t> sum_order, unsigned threads,
                               std::optional<unsigned> multiprocessors, const std::vector<PendingTuple>& pending,
                               bool not_portable) {
  const std::vector<std::string> bytes(parameters.begin(), parameters.end());
  const py::gil_scoped_release release;
  emulator::ptx::Kernel kernel(ptx, entry);
  emulator::GlobalMemory memory(allocations_from(allocations));
  memory.set_pending(pending_from(pending));
  emulator::Counters counters;
  emulator::ptx::execute(kernel, shape_of(grid, block, shared_memory, cluster, not_portable), bytes,
                         emulator::chip_of(chip, multiprocessors), memory,
                         {max_instructions, seed, sum_order, threads}, counters);
  return counters;
}

std::vector<emulator::Counters> emulate_on_devices(
    const std::string& ptx, const std::string& entry, std::array<unsigned, 3> grid, std::array<unsigned, 3> block,
    std::size_t shared_memory, const std::vector<std::vector<py::bytes>>& parameters,
    const std::vector<std::vector<AllocationTuple>>& allocations, std::uint64_t max_instructions,
    std::optional<std::array<unsigned, 3>> cluster, const std::string& chip, std::optional<std::uint64_t> seed,
    std::optional<std::uint64_t> sum_order, unsigned threads, std::optional<unsigned> multiprocessors, bool not_portable) {
  std::vector<std::vector<std::string>> bytes;
  for (const auto& one : parameters) bytes.emplace_back(one.begin(), one.end());
  const py::gil_scoped_release release;
  std::vector<std::unique_ptr<emulator::ptx::Kernel>> kernels;
  std::vector<emulator::ptx::DeviceLaunch> devices;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    kernels.push_back(std::make_unique<emulator::ptx::Kernel>(ptx, entry));
    devices.push_back(
        {kernels.back().get(), shape_of(grid, block, shared_memory, cluster, not_portable), bytes[i],
         emulator::GlobalMemory(allocations_from(allocations.at(i))), {}});
  }
  emulator::ptx::execute_on_devices(devices, emulator::chip_of(chip, multiprocessors),
                                    {max_instructions, seed, sum_order, threads});
  std::vector<emulator::Counters> counters;
  for (const auto& device : devices) counters.push_back(device.counters);
  return counters;
}

emulator::Counters emulate_launch(int position, const std::string& ptx, const std::vector<AllocationTuple>& allocations,
                                  const std::vector<std::int64_t>& arguments, std::uint64_t max_instructions,
                                  const std::string& chip, std::optional<std::uint64_t> seed,
                                  std::optional<std::uint64_t> sum_order, unsigned threads,
                                  std::optional<unsigned> multiprocessors, const std::vector<PendingTuple>& pending) {
  EmulatorRuntime runtime({ptx}, allocations_from(allocations), emulator::chip_of(chip, multiprocessors),
                          {max_instructions, seed, sum_order, threads});
  runtime.set_pending(pending_from(pending));
  try {
    launch_on(position, runtime, arguments);
  } catch (...) {
    runtime.rethrow();  // the reason, if a launch had one
    throw;
  }
  return runtime.counters;
}

// Python's signal handlers, of which Ctrl-C is one, run only when native code lets them.
void run_signal_handlers() {
  using Clock = std::chrono::steady_clock;
  thread_local Clock::time_point last;
  if (Clock::now() - last < std::chrono::milliseconds(50)) return;
  last = Clock::now();
  const py::gil_scoped_acquire acquire;
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

bool other_threads_run() {
  const py::gil_scoped_acquire acquire;
  const py::module_ threading = py::module_::import("threading");
  const py::object own = threading.attr("current_thread")();
  for (const py::handle thread : threading.attr("enumerate")()) {
    if (!thread.is(own) && !thread.attr("daemon").cast<bool>()) return true;
  }
  return false;
}

void set_fault(PyObject* type, const emulator::Fault& fault) {
  const py::object error = py::reinterpret_borrow<py::object>(type)(fault.what());
  const auto& [kind, message, lane, address, pc] = fault.violation;
  error.attr("kind") = emulator::name_of(kind);
  error.attr("kernel") = fault.place.kernel;
  error.attr("entry") = fault.place.kernel;
  error.attr("line") = fault.place.line;
  error.attr("instruction") = fault.place.text;
  const std::string& source = fault.place.source.whole;
  error.attr("source") = source.empty() ? py::object(py::none()) : py::object(py::str(source));
  const auto& text = fault.place.program_text;
  error.attr("ptx") = text == nullptr ? py::object(py::none()) : py::object(py::str(*text));
  error.attr("block") = py::make_tuple(fault.place.block[0], fault.place.block[1], fault.place.block[2]);
  error.attr("warp") = fault.place.warp < 0 ? py::object(py::none()) : py::object(py::int_(fault.place.warp));
  error.attr("lane") = lane < 0 ? py::object(py::none()) : py::object(py::int_(lane));
  error.attr("address") = address ? py::object(py::int_(*address)) : py::object(py::none());
  PyErr_SetObject(type, error.ptr());
}

void set_text_error(PyObject* type, const emulator::ptx::PtxError& found) {
  const py::object error = py::reinterpret_borrow<py::object>(type)(found.what());
  error.attr("line") = found.line;
  PyErr_SetObject(type, error.ptr());
}

}  // namespace

void add_emulator(py::module_& m) {
  emulator::set_interrupt_check(&run_signal_handlers);
  emulator::set_host_check(&other_threads_run);
  static PyObject* fault_type = PyErr_NewException("msa_ops._C.EmulatorFault", PyExc_RuntimeError, nullptr);
  m.add_object("EmulatorFault", py::reinterpret_borrow<py::object>(fault_type));
  static PyObject* error_type = PyErr_NewException("msa_ops._C.PtxError", PyExc_ValueError, nullptr);
  m.add_object("PtxError", py::reinterpret_borrow<py::object>(error_type));
  static PyObject* unsupported_type = PyErr_NewException("msa_ops._C.UnsupportedPtx", PyExc_NotImplementedError, nullptr);
  m.add_object("UnsupportedPtx", py::reinterpret_borrow<py::object>(unsupported_type));
  py::register_exception_translator([](std::exception_ptr pointer) {
    try {
      if (pointer) std::rethrow_exception(pointer);
    } catch (const emulator::Fault& fault) {
      set_fault(fault_type, fault);
    } catch (const emulator::ptx::Unsupported& error) {
      set_text_error(unsupported_type, error);
    } catch (const emulator::ptx::PtxError& error) {
      set_text_error(error_type, error);
    }
  });

  py::class_<emulator::Counters>(m, "EmulatorCounters")
      .def_readonly("warp_instructions", &emulator::Counters::warp_instructions)
      .def_readonly("global_bytes_read", &emulator::Counters::global_bytes_read)
      .def_readonly("global_bytes_written", &emulator::Counters::global_bytes_written)
      .def_readonly("matrix_flops", &emulator::Counters::matrix_flops)
      .def_readonly("tensor_bytes", &emulator::Counters::tensor_bytes)
      .def_readonly("global_requests", &emulator::Counters::global_requests)
      .def_readonly("global_sectors", &emulator::Counters::global_sectors)
      .def_readonly("shared_passes", &emulator::Counters::shared_passes)
      .def_readonly("shared_passes_at_least", &emulator::Counters::shared_passes_at_least)
      .def_readonly("waits", &emulator::Counters::waits)
      .def_readonly("waits_for", &emulator::Counters::waits_for)
      .def_readonly("instructions_of_warp", &emulator::Counters::instructions_of_warp)
      .def_readonly("waits_of_warp", &emulator::Counters::waits_of_warp)
      .def_readonly("bytes_by_space", &emulator::Counters::bytes_by_space)
      .def_readonly("launches", &emulator::Counters::launches)
      .def_readonly("last_writes", &emulator::Counters::last_writes)
      .def_readonly("out_of_range_lanes", &emulator::Counters::out_of_range_lanes);

  py::class_<emulator::Footprint>(m, "Footprint")
      .def(py::init(&footprint_from), py::arg("element"), py::arg("steps"),
           "Which bytes a view covers: an element of so many bytes, repeated by steps of (stride in bytes, count).")
      .def_property_readonly("bytes", &emulator::Footprint::bytes)
      .def_property_readonly("run", &emulator::Footprint::run)
      .def_property_readonly("steps",
                             [](const emulator::Footprint& self) {
                               std::vector<StepPair> made;
                               for (const auto& [stride, count] : self.steps()) made.emplace_back(stride, count);
                               return made;
                             })
      .def("segment",
           [](const emulator::Footprint& self, std::uint64_t offset) {
             if (offset >= self.bytes()) throw std::invalid_argument("offset: outside");
             const auto here = self.segment(offset);
             return std::make_tuple(here.first, here.end, here.inside);
           },
           py::arg("offset"), "First offset and one behind the last of the run or gap there, and whether it is a run.");
  py::class_<MulticastRange>(m, "MulticastRange")
      .def(py::init<std::size_t, std::vector<std::uint64_t>, bool>(), py::arg("bytes"), py::arg("copies"), py::arg("writable"),
           "Addresses that stand for memory of several emulated devices.")
      .def_property_readonly("address", &MulticastRange::address);
  m.def("emulate_ptx", &emulate_ptx, py::arg("ptx"), py::arg("entry"), py::arg("grid"), py::arg("block"),
        py::arg("shared_memory"), py::arg("parameters"), py::arg("allocations"), py::arg("max_instructions"),
        py::arg("cluster") = py::none(), py::arg("chip") = "sm_90a", py::arg("seed") = py::none(),
        py::arg("sum_order") = py::none(), py::arg("threads") = 1, py::arg("multiprocessors") = py::none(),
        py::arg("pending") = std::vector<PendingTuple>{}, py::arg("not_portable") = false,
        "Executes one launch of a PTX kernel on this machine's memory.");
  m.def("emulate_on_devices", &emulate_on_devices, py::arg("ptx"), py::arg("entry"), py::arg("grid"), py::arg("block"),
        py::arg("shared_memory"), py::arg("parameters"), py::arg("allocations"), py::arg("max_instructions"),
        py::arg("cluster"), py::arg("chip"), py::arg("seed"), py::arg("sum_order"), py::arg("threads"),
        py::arg("multiprocessors") = py::none(), py::arg("not_portable") = false,
        "Executes a launch of a PTX kernel on each of several devices at the same time.");
  m.def("emulate_launch", &emulate_launch, py::arg("position"), py::arg("ptx"), py::arg("allocations"),
        py::arg("arguments"), py::arg("max_instructions"), py::arg("chip") = "sm_90a", py::arg("seed") = py::none(),
        py::arg("sum_order") = py::none(), py::arg("threads") = 1, py::arg("multiprocessors") = py::none(),
        py::arg("pending") = std::vector<PendingTuple>{}, py::call_guard<py::gil_scoped_release>(),
        "Runs a compiled kernel's host launcher; what it launches is executed from the PTX.");
  m.def(
      "encode_tensor_map",
      [](unsigned type, std::uint64_t address, const std::vector<std::uint64_t>& sizes,
         const std::vector<std::uint64_t>& strides, const std::vector<std::uint32_t>& box,
         const std::vector<std::uint32_t>& steps, unsigned swizzle, unsigned atomicity, bool nan_outside,
         unsigned l2_promotion) {
        using emulator::ptx::TensorMap;
        const std::size_t rank = sizes.size();
        if (rank < 1 || rank > TensorMap::kMostDimensions || strides.size() + 1 != rank || box.size() != rank ||
            steps.size() != rank) {
          throw std::invalid_argument("tensor map: 1 to 5 sizes, as many boxes and steps, and one stride less");
        }
        TensorMap map;
        map.address = address;
        map.rank = static_cast<unsigned>(rank);
        map.type = static_cast<TensorMap::Type>(type);
        std::copy(sizes.begin(), sizes.end(), map.sizes.begin());
        std::copy(strides.begin(), strides.end(), map.strides.begin() + 1);
        std::copy(box.begin(), box.end(), map.box.begin());
        std::copy(steps.begin(), steps.end(), map.steps.begin());
        map.swizzle = swizzle;
        map.atomicity = static_cast<TensorMap::Atomicity>(atomicity);
        map.nan_outside = nan_outside;
        std::array<std::byte, TensorMap::kBytes> bytes{};
        map.encode(bytes.data(), l2_promotion);
        return py::bytes(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      },
      py::arg("type"), py::arg("address"), py::arg("sizes"), py::arg("strides"), py::arg("box"), py::arg("steps"),
      py::arg("swizzle"), py::arg("atomicity"), py::arg("nan_outside"), py::arg("l2_promotion"),
      "The 128 bytes of a tensor map; ValueError for what the driver refuses.");
  m.def(
      "encode_im2col_map",
      [](unsigned type, std::uint64_t address, const std::vector<std::uint64_t>& sizes,
         const std::vector<std::uint64_t>& strides, const std::vector<std::int32_t>& lower,
         const std::vector<std::int32_t>& upper, std::uint32_t channels, std::uint32_t pixels,
         const std::vector<std::uint32_t>& steps, unsigned swizzle, unsigned atomicity, bool nan_outside,
         unsigned l2_promotion) {
        using emulator::ptx::TensorMap;
        const std::size_t rank = sizes.size();
        if (rank < 3 || rank > TensorMap::kMostDimensions || strides.size() + 1 != rank || steps.size() != rank ||
            lower.size() + 2 != rank || upper.size() + 2 != rank) {
          throw std::invalid_argument(
              "tensor map: 3 to 5 sizes, as many steps, one stride less, and corners of two numbers less");
        }
        TensorMap map;
        map.address = address;
        map.rank = static_cast<unsigned>(rank);
        map.type = static_cast<TensorMap::Type>(type);
        std::copy(sizes.begin(), sizes.end(), map.sizes.begin());
        std::copy(strides.begin(), strides.end(), map.strides.begin() + 1);
        std::copy(steps.begin(), steps.end(), map.steps.begin());
        std::copy(lower.begin(), lower.end(), map.lower.begin());
        std::copy(upper.begin(), upper.end(), map.upper.begin());
        map.box = {channels, 1, 1, 1, 1};
        map.im2col = true;
        map.pixels = pixels;
        map.swizzle = swizzle;
        map.atomicity = static_cast<TensorMap::Atomicity>(atomicity);
        map.nan_outside = nan_outside;
        std::array<std::byte, TensorMap::kBytes> bytes{};
        map.encode(bytes.data(), l2_promotion);
        return py::bytes(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      },
      py::arg("type"), py::arg("address"), py::arg("sizes"), py::arg("strides"), py::arg("lower"), py::arg("upper"),
      py::arg("channels"), py::arg("pixels"), py::arg("steps"), py::arg("swizzle"), py::arg("atomicity"),
      py::arg("nan_outside"), py::arg("l2_promotion"),
      "The 128 bytes of a tensor map of pixels; ValueError for what the driver refuses.");
  m.def(
      "ptx_parameters",
      [](const std::string& ptx, const std::string& entry) {
        std::vector<std::pair<std::uint64_t, std::string>> found;
        const emulator::ptx::Kernel kernel(ptx, entry);
        for (const auto& parameter : kernel.parameters()) found.emplace_back(parameter.bytes, parameter.type);
        return found;
      },
      py::arg("ptx"), py::arg("entry"), "Bytes and type (\".f32\"; of an array \"\") of each parameter of a kernel, which is checked as a whole.");
  m.def("set_unit_table",
        [](const std::string& name, const py::bytes& bytes) { emulator::ptx::set_unit_table(name, bytes); },
        py::arg("name"), py::arg("bytes"), "A table of emulator/ptx/approximate.hpp.");
  m.def("target_has", &emulator::ptx::target_has, py::arg("target"), py::arg("opcode"),
        "Whether PTX of this .target may hold the instruction.");
  m.def(
      "emulated_forms",
      [] {
        std::vector<std::pair<std::string, std::string>> forms;
        for (const auto& form : emulator::ptx::all_forms()) forms.emplace_back(form.opcode, form.operands);
        return forms;
      },
      "Opcode and operands of every instruction, as emulator/ptx/instruction.hpp writes them.");
  m.def(
      "emulated_opcodes",
      [] {
        std::vector<std::string> names;
        for (const auto& form : emulator::ptx::all_forms()) names.push_back(form.opcode);
        return names;
      },
      "Every opcode that the emulator executes, without modifiers that change nothing in it.");
}

}  // namespace msa_ops

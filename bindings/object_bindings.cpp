#include "object_bindings.hpp"

#include <pybind11/stl.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "allocations.hpp"
#include "collecting_runtime.hpp"
#include "compiled_kernels.hpp"
#include "devices_together.hpp"
#include "emulator_runtime.hpp"

namespace py = pybind11;

namespace msa_ops {
namespace {

// Addresses of the functions of an object that is loaded in this process.
struct ObjectFunctions {
  std::string name;
  std::uintptr_t init, load_to_device, launch;

  CompiledKernel kernel() const {
    return {name.c_str(), "", 0, reinterpret_cast<void (*)(void**)>(init),
            reinterpret_cast<void (*)(void**)>(load_to_device),
            reinterpret_cast<void (*)(void**, std::int32_t)>(launch)};
  }
};

// Values as a launcher takes them: it reads them where they are.
std::vector<void*> addresses_of(std::vector<std::string>& values) {
  std::vector<void*> addresses;
  for (auto& value : values) addresses.push_back(value.data());
  return addresses;
}

void launch(const ObjectFunctions& object, EmulatorRuntime& runtime, std::vector<std::string> values) {
  const std::string last = values.empty() ? "" : values.back();
  try {
    launch_on(object.kernel(), runtime, addresses_of(values));
  } catch (...) {
    runtime.rethrow();  // the reason, if a launch had one
    throw;
  }
  // Without a header it is not known whether there is a stream, which would be the last value. A launcher without one
  // takes that place for its result.
  if (!values.empty() && values.back() != last) {
    runtime.rethrow();
    throw std::runtime_error("kernel " + object.name + ": its launch failed");
  }
}

std::vector<std::string> texts(const std::vector<py::bytes>& values) { return {values.begin(), values.end()}; }

emulator::Counters emulate_object(const ObjectFunctions& object, const std::vector<std::string>& modules,
                                  const std::vector<py::bytes>& arguments,
                                  const std::vector<AllocationTuple>& allocations, std::uint64_t max_instructions,
                                  const std::string& chip, std::optional<std::uint64_t> seed,
                                  std::optional<std::uint64_t> sum_order, unsigned threads,
                                  std::optional<unsigned> multiprocessors) {
  auto values = texts(arguments);
  const py::gil_scoped_release release;
  EmulatorRuntime runtime(modules, allocations_from(allocations), emulator::chip_of(chip, multiprocessors),
                          {max_instructions, seed, sum_order, threads});
  launch(object, runtime, std::move(values));
  return runtime.counters;
}

// The launches of all devices side by side: the first of each together, then the second, and so on.
std::vector<emulator::Counters> emulate_object_on_devices(
    const ObjectFunctions& object, const std::vector<std::string>& modules,
    const std::vector<std::vector<py::bytes>>& arguments, const std::vector<std::vector<AllocationTuple>>& allocations,
    std::uint64_t max_instructions, const std::string& chip, std::optional<std::uint64_t> seed,
    std::optional<std::uint64_t> sum_order, unsigned threads, std::optional<unsigned> multiprocessors) {
  const emulator::Chip device = emulator::chip_of(chip, multiprocessors);
  std::vector<std::vector<std::string>> values;
  for (const auto& own : arguments) values.push_back(texts(own));
  const py::gil_scoped_release release;
  std::vector<CollectingRuntime> runtimes;
  runtimes.reserve(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    runtimes.emplace_back(modules, device, static_cast<int>(i));
    launch(object, runtimes.back(), std::move(values[i]));
  }
  std::vector<emulator::GlobalMemory> memories;
  for (const auto& own : allocations) memories.emplace_back(allocations_from(own));
  DevicesTogether devices(device, {max_instructions, seed, sum_order, threads}, std::move(memories));
  const std::size_t count = runtimes.front().launches.size();
  for (std::size_t i = 0; i < runtimes.size(); ++i) {
    if (runtimes[i].launches.size() != count) {
      throw std::invalid_argument("device " + std::to_string(i) + " launches " +
                                  std::to_string(runtimes[i].launches.size()) + " kernels, device 0 " +
                                  std::to_string(count));
    }
  }
  for (std::size_t step = 0; step < count; ++step) {
    std::vector<EmulatorRuntime::Launch> launches;
    for (auto& runtime : runtimes) launches.push_back(std::move(runtime.launches[step]));
    devices.execute(std::move(launches));
  }
  return devices.counters();
}

}  // namespace

void add_objects(py::module_& m) {
  py::class_<ObjectFunctions>(m, "ObjectFunctions")
      .def(py::init([](std::string name, std::uintptr_t init, std::uintptr_t load_to_device, std::uintptr_t launch) {
             return ObjectFunctions{std::move(name), init, load_to_device, launch};
           }),
           py::arg("name"), py::arg("init"), py::arg("load_to_device"), py::arg("launch"));
  m.def(
      "seam_functions",
      [] {
        std::map<std::string, std::uintptr_t> found;
        for (const auto& one : seam_functions()) found[one.name] = reinterpret_cast<std::uintptr_t>(one.address);
        return found;
      },
      "Addresses of the functions that exported objects call, by name.");
  m.def("emulate_object", &emulate_object, py::arg("object"), py::arg("modules"), py::arg("arguments"),
        py::arg("allocations"), py::arg("max_instructions"), py::arg("chip"), py::arg("seed"), py::arg("sum_order"),
        py::arg("threads"), py::arg("multiprocessors") = py::none(), "Runs an object's host launcher; what it launches is executed from the PTX of its modules.");
  m.def("emulate_object_on_devices", &emulate_object_on_devices, py::arg("object"), py::arg("modules"),
        py::arg("arguments"), py::arg("allocations"), py::arg("max_instructions"), py::arg("chip"), py::arg("seed"),
        py::arg("sum_order"), py::arg("threads"),
        py::arg("multiprocessors") = py::none(), "The same on several devices at the same time.");
}

}  // namespace msa_ops

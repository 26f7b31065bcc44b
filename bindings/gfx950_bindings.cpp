// What Python sees of the gfx950 front end.
#include <pybind11/stl.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "emulator_bindings.hpp"
#include "allocations.hpp"
#include "gfx950/execute.hpp"
#include "gfx950/forms.hpp"
#include "gfx950/product.hpp"

namespace py = pybind11;

namespace msa_ops {
namespace {

namespace gfx950 = emulator::gfx950;

std::vector<emulator::Allocation> memory_from(const std::vector<AllocationTuple>& tuples) {
  std::vector<emulator::Allocation> memory = allocations_from(tuples);
  for (const emulator::Allocation& one : memory) {
    if (!one.copies.empty()) throw std::invalid_argument(one.name + ": a multicast tensor, which gfx950 has not");
  }
  return memory;
}

using RangePair = std::pair<std::uint64_t, std::uint64_t>;  // address, bytes

std::vector<gfx950::Coherence::Range> ranges_of(const std::vector<RangePair>& pairs) {
  std::vector<gfx950::Coherence::Range> made;
  for (const auto& [address, bytes] : pairs) made.push_back({address, bytes});
  return made;
}

using KindRange = std::tuple<std::string, std::uint32_t, std::uint32_t>;  // kind of a fault, instructions from and to

gfx950::AcceptedFaults accepted_of(const std::vector<KindRange>& ranges) {
  std::vector<gfx950::AcceptedFaults::Range> made;
  for (const auto& [name, first, last] : ranges) {
    int kind = 0;
    while (kind <= static_cast<int>(emulator::FaultKind::kLimit) &&
           name_of(static_cast<emulator::FaultKind>(kind)) != name)
      ++kind;
    if (kind > static_cast<int>(emulator::FaultKind::kLimit))
      throw std::invalid_argument("accept: '" + name + "' is no kind of a fault");
    made.push_back({static_cast<emulator::FaultKind>(kind), first, last});
  }
  return gfx950::AcceptedFaults(std::move(made));
}

const std::uint8_t* bytes_of(const std::string& text) { return reinterpret_cast<const std::uint8_t*>(text.data()); }

emulator::Counters emulate_code_object(const py::bytes& code_object, const std::string& kernel_name,
                                       std::array<unsigned, 3> grid, std::array<unsigned, 3> block, std::size_t lds,
                                       const py::bytes& kernarg, const std::vector<AllocationTuple>& allocations,
                                       std::uint64_t max_instructions, std::optional<std::uint64_t> seed,
                                       const std::vector<RangePair>& uncached, const std::vector<KindRange>& accept) {
  const std::string code = code_object, arguments = kernarg;
  std::vector<emulator::Allocation> memory = memory_from(allocations);
  const py::gil_scoped_release release;
  gfx950::Kernel kernel(bytes_of(code), code.size(), kernel_name);
  kernel.set_accepted(accepted_of(accept));
  emulator::Counters counters;
  gfx950::execute(kernel, {grid, block, lds}, {arguments.begin(), arguments.end()}, std::move(memory),
                  {max_instructions, seed}, counters, ranges_of(uncached));
  return counters;
}

std::vector<emulator::Counters> emulate_code_object_on_devices(
    const py::bytes& code_object, const std::string& kernel_name, std::array<unsigned, 3> grid,
    std::array<unsigned, 3> block, std::size_t lds, const std::vector<py::bytes>& kernargs,
    const std::vector<std::vector<AllocationTuple>>& allocations, std::uint64_t max_instructions,
    std::optional<std::uint64_t> seed, const std::vector<RangePair>& uncached, const std::vector<KindRange>& accept) {
  const std::string code = code_object;
  const std::vector<std::string> arguments(kernargs.begin(), kernargs.end());
  const py::gil_scoped_release release;
  std::vector<std::unique_ptr<gfx950::Kernel>> kernels;
  std::vector<gfx950::DeviceLaunch> devices;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    kernels.push_back(std::make_unique<gfx950::Kernel>(bytes_of(code), code.size(), kernel_name));
    kernels.back()->set_accepted(accepted_of(accept));
    std::vector<emulator::Allocation> memory = memory_from(allocations.at(i));
    devices.push_back({kernels.back().get(), {arguments[i].begin(), arguments[i].end()}, std::move(memory)});
  }
  gfx950::execute_on_devices(devices, {grid, block, lds}, {max_instructions, seed}, ranges_of(uncached));
  std::vector<emulator::Counters> made;
  for (const auto& device : devices) made.push_back(device.counters);
  return made;
}

// Kernels of a code object: name, explicit arguments as (offset, bytes, kind), LDS, scratch, VGPRs.
py::list code_object_kernels(const py::bytes& code_object) {
  const std::string code = code_object;
  py::list made;
  for (const auto& image : gfx950::read_code_object(bytes_of(code), code.size()).kernels) {
    py::list arguments;
    for (const auto& argument : image.arguments) {
      if (argument.kind.rfind("hidden_", 0) != 0)
        arguments.append(py::make_tuple(argument.offset, argument.bytes, argument.kind));
    }
    py::dict kernel;
    kernel["name"] = image.name;
    kernel["arguments"] = arguments;
    kernel["lds"] = image.descriptor.group_segment_bytes;
    kernel["scratch"] = image.descriptor.private_segment_bytes;
    kernel["vgprs"] = image.descriptor.num_vgprs();
    made.append(kernel);
  }
  return made;
}

// (offset, bytes, text) of each instruction of a kernel.
std::vector<std::tuple<unsigned, unsigned, std::string>> disassemble(const py::bytes& code_object,
                                                                     const std::string& kernel_name) {
  const std::string code = code_object;
  const gfx950::Kernel kernel(bytes_of(code), code.size(), kernel_name);
  std::vector<std::tuple<unsigned, unsigned, std::string>> made;
  for (const auto& instruction : kernel.instructions()) {
    if (instruction.size > 0) made.emplace_back(instruction.address, instruction.size, gfx950::text_of(instruction));
  }
  return made;
}

std::string disassemble_one(const py::bytes& code) {
  const std::string text = code;
  const gfx950::Instruction made = gfx950::decode({text.begin(), text.end()}, 0);
  return std::to_string(made.size) + " " + gfx950::text_of(made);
}

}  // namespace

void add_gfx950(py::module_& m) {
  py::register_exception<gfx950::CodeObjectError>(m, "CodeObjectError", PyExc_ValueError);
  py::register_exception<gfx950::Unsupported>(m, "UnsupportedGfx950", PyExc_NotImplementedError);
  m.def("emulate_code_object", &emulate_code_object, py::arg("code_object"), py::arg("kernel"), py::arg("grid"),
        py::arg("block"), py::arg("lds"), py::arg("kernarg"), py::arg("allocations"), py::arg("max_instructions"),
        py::arg("seed"), py::arg("uncached") = std::vector<RangePair>{},
        py::arg("accept") = std::vector<KindRange>{},
        "Executes one launch of a kernel of a gfx950 code object on this machine's memory.");
  m.def("emulate_code_object_on_devices", &emulate_code_object_on_devices, py::arg("code_object"), py::arg("kernel"),
        py::arg("grid"), py::arg("block"), py::arg("lds"), py::arg("kernargs"), py::arg("allocations"),
        py::arg("max_instructions"), py::arg("seed"), py::arg("uncached") = std::vector<RangePair>{},
        py::arg("accept") = std::vector<KindRange>{},
        "Executes one launch of a kernel on each of several devices at the same time.");
  m.def("code_object_kernels", &code_object_kernels, py::arg("code_object"), "What a launch of each kernel needs.");
  m.def("disassemble_gfx950", &disassemble, py::arg("code_object"), py::arg("kernel"), "The instructions of a kernel.");
  m.def("disassemble_gfx950_instruction", &disassemble_one, py::arg("code"),
        "Bytes and text of the first instruction.");
  m.def(
      "gfx950_products",
      [] {
        std::vector<std::string> names;
        for (const auto* one : gfx950::products()) names.emplace_back(one->name);
        return names;
      },
      "Implementations of matrix arithmetic that this processor runs, the best one first.");
  m.def("choose_gfx950_product", &gfx950::choose_product, py::arg("name"),
        "Takes another of `gfx950_products` from now on; results are the same.");
  m.def(
      "gfx950_opcodes",
      [] {
        std::vector<std::string> names;
        for (const auto& form : gfx950::all_forms()) names.emplace_back(form.name);
        return names;
      },
      "Every instruction of gfx950 that is executed.");
}

}  // namespace msa_ops

#include "session_bindings.hpp"

#include <pybind11/stl.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "allocations.hpp"
#include "session_runtime.hpp"

namespace py = pybind11;

namespace msa_ops {
namespace {

class Session {
 public:
  Session(const std::string& chip, std::uint64_t max_instructions, std::optional<std::uint64_t> seed,
          std::optional<std::uint64_t> sum_order, unsigned threads, std::optional<unsigned> multiprocessors)
      : runtime(emulator::chip_of(chip, multiprocessors), {max_instructions, seed, sum_order, threads}) {}

  void enter() { scopes_[std::this_thread::get_id()] = std::make_unique<RuntimeScope>(runtime); }
  void leave() { scopes_.erase(std::this_thread::get_id()); }

  SessionRuntime runtime;

 private:
  std::map<std::thread::id, std::unique_ptr<RuntimeScope>> scopes_;  // of the threads that are in the session
};

}  // namespace

void add_sessions(py::module_& m) {
  py::class_<Session>(m, "EmulatorSession")
      .def(py::init<const std::string&, std::uint64_t, std::optional<std::uint64_t>, std::optional<std::uint64_t>,
                    unsigned, std::optional<unsigned>>(),
           py::arg("chip"), py::arg("max_instructions"), py::arg("seed"), py::arg("sum_order"), py::arg("threads"),
           py::arg("multiprocessors") = py::none())
      .def("enter", &Session::enter, "From now on this thread's kernels run here.")
      .def("leave", &Session::leave)
      .def(
          "add_module",
          [](Session& session, const py::bytes& code, std::string ptx) {
            session.runtime.add_module(code, std::move(ptx));
          },
          py::arg("code"), py::arg("ptx"))
      .def(
          "set_memory",
          [](Session& session, const std::vector<AllocationTuple>& allocations) {
            session.runtime.set_memory(allocations_from(allocations));
          },
          py::arg("allocations"))
      .def(
          "set_options",
          [](Session& session, std::uint64_t max_instructions, std::optional<std::uint64_t> seed,
             std::optional<std::uint64_t> sum_order, unsigned threads) {
            session.runtime.set_options({max_instructions, seed, sum_order, threads});
          },
          py::arg("max_instructions"), py::arg("seed"), py::arg("sum_order"), py::arg("threads"))
      .def("begin_together", [](Session& session) { session.runtime.begin_together(); })
      .def("forget_together", [](Session& session) { session.runtime.forget_together(); })
      .def(
          "run_together",
          [](Session& session, const std::optional<std::vector<std::vector<std::size_t>>>& rounds) {
            if (rounds) session.runtime.run_together(*rounds);
            else session.runtime.run_together();
          },
          py::arg("rounds") = py::none(), py::call_guard<py::gil_scoped_release>(),
          "Executes what was kept, at the same time or in rounds of these numbers.")
      .def(
          "kept_streams", [](const Session& session) { return session.runtime.kept_streams(); },
          "The streams of what is kept, in order.")
      .def(
          "take_launches",
          [](Session& session) { return std::exchange(session.runtime.launches, {}); },
          "(kernel, counters) of what was executed since the last time.")
      .def(
          "rethrow", [](const Session& session) { session.runtime.rethrow(); },
          "Raises what a launch failed with; nothing if none did.");
}

}  // namespace msa_ops

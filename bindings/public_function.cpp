#include "public_function.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "op_entry.hpp"

namespace py = pybind11;

namespace msa_ops {

#if PY_VERSION_HEX >= 0x030C0000
namespace {

struct Parameter {
  enum class Kind { kOfOp, kOut, kBackend, kReturnLse };
  py::str name;
  Kind kind;
  std::size_t place;      // among the op's parameters
  py::object default_value;  // null if it has to be given
};

class PublicFunction {
 public:
  PublicFunction(py::object entry, vectorcallfunc long_way)
      : callable_(std::move(entry)), entry_(entry_of(callable_)), long_way_(long_way) {}

  std::vector<Parameter> parameters;
  std::size_t positional = 0;  // so many may be given without a name
  bool chooses = false;        // has return_lse

  PyObject* call(PyObject* self, PyObject* const* args, std::size_t flags, PyObject* keywords) {
    CallValues values{};
    bool first_alone = false;
    if (!is_watched() && has_short_way(entry_) &&
        arrange(args, PyVectorcall_NARGS(flags), keywords, values, first_alone)) {
      bool failed = false;
      PyObject* results = call_short_way(entry_, values, failed);
      if (failed) return nullptr;
      if (results != nullptr) return first_alone ? first_of(results) : results;
    }
    return long_way_(self, args, flags, keywords);
  }

 private:
  // Whether something takes part in how frames are evaluated.
  static bool is_watched() {
    return _PyInterpreterState_GetEvalFrameFunc(PyInterpreterState_Get()) != _PyEval_EvalFrameDefault;
  }

  static PyObject* first_of(PyObject* results) {
    PyObject* first = Py_NewRef(PyTuple_GET_ITEM(results, 0));
    Py_DECREF(results);
    return first;
  }

  // The parameter that the keyword at `index` names; a call names the same ones as the call before, most of the time.
  std::size_t find(PyObject* name, std::size_t index) {
    std::size_t& expected = expected_[index];
    if (parameters[expected].name.ptr() == name) return expected;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (parameters[i].name.ptr() == name) return expected = i;
    }
    return parameters.size();
  }

  // False for what the function has to see, mistakes among them.
  bool arrange(PyObject* const* args, std::size_t num_args, PyObject* keywords, CallValues& values, bool& first_alone) {
    std::array<PyObject*, kMost> given{};
    const std::size_t num_keywords = keywords == nullptr ? 0 : static_cast<std::size_t>(PyTuple_GET_SIZE(keywords));
    if (num_args > positional || num_keywords > parameters.size()) return false;
    std::copy(args, args + num_args, given.begin());
    for (std::size_t i = 0; i < num_keywords; ++i) {
      const std::size_t which = find(PyTuple_GET_ITEM(keywords, i), i);
      if (which == parameters.size() || given[which] != nullptr) return false;
      given[which] = args[num_args + i];
    }
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const Parameter& parameter = parameters[i];
      PyObject* value = given[i] != nullptr ? given[i] : parameter.default_value.ptr();
      if (value == nullptr) return false;
      switch (parameter.kind) {
        case Parameter::Kind::kOfOp: values.parameters[parameter.place] = value; break;
        case Parameter::Kind::kOut:
          if (chooses && value != Py_None && !PyTuple_CheckExact(value)) return false;
          values.outs = value;
          break;
        case Parameter::Kind::kBackend: values.wish = value; break;
        case Parameter::Kind::kReturnLse:
          if (!PyBool_Check(value)) return false;
          first_alone = value == Py_False;
          break;
      }
    }
    return true;
  }

  static constexpr std::size_t kMost = CallValues::kMost;
  py::object callable_;  // keeps the entry
  const OpEntry& entry_;
  vectorcallfunc long_way_;
  std::array<std::size_t, kMost> expected_{};  // parameters of the keywords of the call before
};

using Functions = std::unordered_map<PyObject*, std::unique_ptr<PublicFunction>>;
Functions& functions() {
  static auto* all = new Functions();  // never destroyed, as the functions, which are of modules
  return *all;
}

PyObject* call_public(PyObject* self, PyObject* const* args, std::size_t flags, PyObject* keywords) {
  return functions().find(self)->second->call(self, args, flags, keywords);
}

}  // namespace

bool call_without_frames(py::object function, py::object entry) {
  if (Py_TYPE(function.ptr()) != &PyFunction_Type || functions().count(function.ptr()) != 0) return false;
  const py::object code = function.attr("__code__");
  constexpr int kMoreArguments = 0x04 | 0x08;  // *args and **kwargs
  if ((code.attr("co_flags").cast<int>() & kMoreArguments) != 0 || code.attr("co_posonlyargcount").cast<int>() != 0) return false;
  const auto positional = code.attr("co_argcount").cast<std::size_t>();
  const std::size_t count = positional + code.attr("co_kwonlyargcount").cast<std::size_t>();
  if (count > CallValues::kMost) return false;
  auto* object = reinterpret_cast<PyFunctionObject*>(function.ptr());
  auto made = std::make_unique<PublicFunction>(entry, object->vectorcall);
  made->positional = positional;
  const py::tuple names = code.attr("co_varnames");
  const py::object defaults = function.attr("__defaults__"), by_name = function.attr("__kwdefaults__");
  const std::size_t with_default = defaults.is_none() ? 0 : py::len(defaults);
  for (std::size_t i = 0; i < count; ++i) {
    Parameter one{names[i].cast<py::str>(), Parameter::Kind::kOfOp, 0, {}};
    if (i < positional) {
      if (i + with_default >= positional) one.default_value = py::tuple(defaults)[i + with_default - positional];
    } else if (!by_name.is_none() && by_name.contains(one.name)) {
      one.default_value = by_name[one.name];
    }
    const auto name = one.name.cast<std::string>();
    if (name == "out") {
      one.kind = Parameter::Kind::kOut;
    } else if (name == "backend") {
      one.kind = Parameter::Kind::kBackend;
    } else if (name == "return_lse") {
      one.kind = Parameter::Kind::kReturnLse;
      made->chooses = true;
    } else {
      const int place = place_in_op(entry_of(entry), one.name);
      if (place < 0) return false;
      one.place = static_cast<std::size_t>(place);
    }
    made->parameters.push_back(std::move(one));
  }
  function.inc_ref();  // kept, so that no other function is taken for it
  functions().emplace(function.ptr(), std::move(made));
  PyFunction_SetVectorcall(object, call_public);
  return true;
}

#else

bool call_without_frames(py::object, py::object) { return false; }

#endif

}  // namespace msa_ops

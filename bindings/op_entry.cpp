#include "op_entry.hpp"

#include <cstdlib>
#include <memory>
#include <new>
#include <stdexcept>
#include <utility>

namespace py = pybind11;

namespace msa_ops {

struct OpEntry {
  py::object replays_object;
  CallReplays& replays;
  py::object long_way;
  py::object context;
  py::object registry;
  py::str generation;
  std::shared_ptr<TorchState> state;
};

namespace {

constexpr const char* kCapsuleName = "msa_ops.op_entry";

bool is_barred(const OpEntry& entry, const CallValues& values) {
  // The environment may ask for a backend at any time.
  if ((values.wish == nullptr || values.wish == Py_None) && std::getenv("MSA_OPS_BACKEND") != nullptr) return true;
  PyObject* in_force = nullptr;
  if (PyContextVar_Get(entry.context.ptr(), nullptr, &in_force) < 0) throw py::error_already_set();
  if (in_force != nullptr) {
    const int wishes = PyObject_IsTrue(in_force);
    Py_DECREF(in_force);
    if (wishes < 0) throw py::error_already_set();
    if (wishes) return true;
  }
  return !entry.state->is_plain();
}

// Null without an exception if the long way is to be taken.
PyObject* short_way(const OpEntry& entry, const CallValues& values) {
  if (is_barred(entry, values)) return nullptr;
  const py::object generation =
      py::reinterpret_steal<py::object>(PyObject_GetAttr(entry.registry.ptr(), entry.generation.ptr()));
  if (!generation) throw py::error_already_set();
  const long long number = PyLong_AsLongLong(generation.ptr());
  if (number == -1 && PyErr_Occurred() != nullptr) throw py::error_already_set();
  return entry.replays.run(values, entry.state->grad_enabled(), number);
}

// What `way` gives; null with a Python exception, and `failed`, for what it throws.
template <typename Way>
PyObject* caught(Way way, bool& failed) {
  failed = true;
  try {
    PyObject* results = way();
    failed = false;
    return results;
  } catch (py::error_already_set& error) {
    error.restore();
    return nullptr;
  } catch (const std::bad_alloc&) {
    return PyErr_NoMemory();
  } catch (const std::out_of_range& error) {
    PyErr_SetString(PyExc_IndexError, error.what());
    return nullptr;
  } catch (const std::invalid_argument& error) {
    PyErr_SetString(PyExc_ValueError, error.what());
    return nullptr;
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
    return nullptr;
  }
}

PyObject* call(PyObject* self, PyObject* const* args, Py_ssize_t num_args, PyObject* keywords) {
  const auto* entry = static_cast<OpEntry*>(PyCapsule_GetPointer(self, kCapsuleName));
  if (entry == nullptr) return nullptr;
  if (entry->replays.size() > 0) {
    bool failed = false;
    PyObject* results = caught(
        [&]() -> PyObject* {
          CallValues values;
          const bool known = entry->replays.arrange(args, static_cast<std::size_t>(num_args), keywords, values);
          return known ? short_way(*entry, values) : nullptr;
        },
        failed);
    if (results != nullptr || failed) return results;
  }
  return PyObject_Vectorcall(entry->long_way.ptr(), args, num_args, keywords);
}

PyMethodDef kMethod = {"op_entry", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(call)),
                       METH_FASTCALL | METH_KEYWORDS, "Calls an op."};

}  // namespace

py::object op_entry(py::object replays, py::object long_way, py::object context, py::object registry,
                    std::shared_ptr<TorchState> state) {
  auto entry = std::make_unique<OpEntry>(OpEntry{replays, replays.cast<CallReplays&>(), std::move(long_way),
                                             std::move(context), std::move(registry), py::str("generation"),
                                             std::move(state)});
  const py::capsule self(entry.get(), kCapsuleName, [](PyObject* capsule) {
    delete static_cast<OpEntry*>(PyCapsule_GetPointer(capsule, kCapsuleName));
  });
  entry.release();
  return py::reinterpret_steal<py::object>(PyCFunction_NewEx(&kMethod, self.ptr(), nullptr));
}

const OpEntry& entry_of(const py::object& callable) {
  if (!PyCFunction_CheckExact(callable.ptr()) || PyCFunction_GET_FUNCTION(callable.ptr()) != kMethod.ml_meth) {
    throw std::invalid_argument("entry: no entry of an op");
  }
  return *static_cast<OpEntry*>(PyCapsule_GetPointer(PyCFunction_GET_SELF(callable.ptr()), kCapsuleName));
}

bool has_short_way(const OpEntry& entry) { return entry.replays.size() > 0; }

PyObject* call_short_way(const OpEntry& entry, const CallValues& values, bool& failed) {
  return caught([&] { return short_way(entry, values); }, failed);
}

int place_in_op(const OpEntry& entry, const py::str& name) { return entry.replays.place_of(name.ptr()); }

}  // namespace msa_ops

// Tensors that are known not to be negated views, so that a call's tensors are not asked each time.
#pragma once

#include <pybind11/pybind11.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace msa_ops {

// Used by threads that hold the interpreter. Keeps no tensor alive.
class KnownTensors {
 public:
  // Whether `add` was called with this very object, still at this address of memory.
  bool holds(PyObject* tensor, const void* data) const {
    const Entry& entry = entries_[place_of(tensor)];
    return entry.data == data && entry.reference && refers_to(entry.reference.ptr(), tensor);
  }

  // Forgets another tensor if it has to.
  void add(PyObject* tensor, const void* data) {
    PyObject* reference = PyWeakref_NewRef(tensor, nullptr);
    if (reference == nullptr) {
      PyErr_Clear();
      return;
    }
    entries_[place_of(tensor)] = {pybind11::reinterpret_steal<pybind11::object>(reference), data};
  }

 private:
  struct Entry {
    pybind11::object reference;
    const void* data = nullptr;
  };
  static constexpr std::size_t kEntries = 1024;

  static std::size_t place_of(PyObject* tensor) {
    const auto address = reinterpret_cast<std::uintptr_t>(tensor) >> 4;
    return (address ^ address >> 10) % kEntries;
  }
  static bool refers_to(PyObject* reference, PyObject* tensor) {
#if PY_VERSION_HEX >= 0x030D0000
    PyObject* found = nullptr;
    const bool same = PyWeakref_GetRef(reference, &found) == 1 && found == tensor;
    Py_XDECREF(found);
    return same;
#else
    return PyWeakref_GET_OBJECT(reference) == tensor;
#endif
  }

  std::array<Entry, kEntries> entries_;
};

}  // namespace msa_ops

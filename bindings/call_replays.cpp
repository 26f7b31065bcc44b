#include "call_replays.hpp"

#include <algorithm>
#include <functional>
#include <stdexcept>

#include "compiled_kernels.hpp"
#include "driver_runtime.hpp"

namespace py = pybind11;

namespace msa_ops {
namespace {

constexpr std::size_t kMostCalls = 4096;
constexpr std::size_t kMostKeywords = 64;
constexpr std::size_t kMostGraphs = 128;

// Calls function(value) for all values of a call that are given, in the order in which it is read.
template <typename Function>
void for_values(const CallValues& values, std::size_t num_parameters, const py::tuple& made,
                py::handle made_workspace, Function function) {
  for (std::size_t i = 0; i < num_parameters; ++i) {
    if (values.parameters[i] != nullptr) function(values.parameters[i]);
  }
  if (values.outs != nullptr && values.outs != Py_None) {
    for (const py::handle value : py::reinterpret_borrow<py::tuple>(values.outs)) function(value);
  }
  for (const py::handle value : made) function(value);
  if (!made_workspace.is_none()) function(made_workspace);
}

class ReleasedInterpreter {
 public:
  ReleasedInterpreter() : state_(PyEval_SaveThread()) {}
  ~ReleasedInterpreter() { PyEval_RestoreThread(state_); }
  ReleasedInterpreter(const ReleasedInterpreter&) = delete;
  ReleasedInterpreter& operator=(const ReleasedInterpreter&) = delete;

 private:
  PyThreadState* state_;
};

}  // namespace

// Lent by the thread; a call inside of a call (by a destructor that runs meanwhile) gets one of its own.
class CallReplays::BorrowedReading {
 public:
  BorrowedReading() : reading_(std::move(spare())) {
    if (reading_ == nullptr) reading_ = std::make_unique<Reading>();
    reading_->bytes.clear();
    reading_->spans.clear();
  }
  ~BorrowedReading() { spare() = std::move(reading_); }
  BorrowedReading(const BorrowedReading&) = delete;
  BorrowedReading& operator=(const BorrowedReading&) = delete;
  Reading& operator*() const { return *reading_; }

 private:
  static std::unique_ptr<Reading>& spare() {
    thread_local std::unique_ptr<Reading> spare;
    return spare;
  }
  std::unique_ptr<Reading> reading_;
};

CallReplays::CallReplays(const SignatureReader& reader, std::vector<std::string> names,
                         const std::vector<std::string>& written, std::int64_t alignment)
    : reader_(reader), alignment_(alignment) {
  if (names.size() > CallValues::kMost) throw std::invalid_argument("an op of too many parameters");
  for (const std::string& name : names) {
    names_.push_back(py::reinterpret_steal<py::str>(PyUnicode_InternFromString(name.c_str())));
    written_.push_back(std::count(written.begin(), written.end(), name) != 0);
  }
}

int CallReplays::place_of(PyObject* name) const {
  for (std::size_t i = 0; i < names_.size(); ++i) {
    if (PyUnicode_Compare(names_[i].ptr(), name) == 0) return static_cast<int>(i);
  }
  if (PyUnicode_CompareWithASCIIString(name, "out") == 0) return kOut;
  return PyUnicode_CompareWithASCIIString(name, "backend") == 0 ? kWish : kUnknown;
}

bool CallReplays::arrange(PyObject* const* args, std::size_t num_args, PyObject* keywords, CallValues& values) {
  if (num_args > names_.size()) return false;
  std::copy(args, args + num_args, values.parameters);
  std::fill(values.parameters + num_args, values.parameters + names_.size(), nullptr);
  values.outs = values.wish = nullptr;
  if (keywords == nullptr) return true;
  auto known = std::find_if(keywords_.begin(), keywords_.end(),
                            [keywords](const Keywords& each) { return each.names.ptr() == keywords; });
  if (known == keywords_.end()) {
    Keywords made{py::reinterpret_borrow<py::object>(keywords), {}};
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keywords); ++i) {
      made.places.push_back(place_of(PyTuple_GET_ITEM(keywords, i)));
    }
    if (keywords_.size() >= kMostKeywords) keywords_.clear();
    known = keywords_.insert(keywords_.end(), std::move(made));
  }
  PyObject* const* value = args + num_args;
  for (const int place : known->places) {
    if (place == kUnknown) return false;
    PyObject*& slot = place == kOut ? values.outs : place == kWish ? values.wish : values.parameters[place];
    if (slot != nullptr) return false;  // given twice
    slot = *value++;
  }
  return true;
}

bool CallReplays::read(const CallValues& values, bool grad_enabled, Reading& reading) const {
  const auto append = [&](PyObject* value, bool written) {
    const std::size_t before = reading.spans.size();
    if (!reader_.append(value, alignment_, grad_enabled, reading.bytes, reading.spans)) return false;
    if (reading.spans.size() > before) reading.spans[before].written = written;
    return true;
  };
  for (std::size_t i = 0; i < names_.size(); ++i) {
    if (values.parameters[i] == nullptr) {
      reading.bytes.push_back('a');
    } else if (!append(values.parameters[i], written_[i])) {
      return false;
    }
  }
  if (values.outs != nullptr && values.outs != Py_None) {
    reading.bytes.push_back('o');
    if (PyTuple_CheckExact(values.outs)) {
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(values.outs); ++i) {
        if (!append(PyTuple_GET_ITEM(values.outs, i), true)) return false;
      }
    } else if (!append(values.outs, true)) {
      return false;
    }
  }
  reading.bytes.push_back('w');
  if (!append(values.wish == nullptr ? Py_None : values.wish, false)) return false;
  SignatureReader::append_overlaps(reading.spans, reading.bytes);
  return true;
}

void CallReplays::forget() {
  last_ = nullptr;
  calls_.clear();
  graphs_ = 0;
}

std::shared_ptr<const CallReplays::Call> CallReplays::find(const std::string& bytes) {
  if (last_ == nullptr || last_->first != bytes) {
    const auto found = calls_.find(bytes);
    if (found == calls_.end()) return nullptr;
    last_ = &*found;
  }
  return last_->second;
}

PyObject* CallReplays::run(const CallValues& values, bool grad_enabled, std::int64_t generation) {
  if (calls_.empty()) return nullptr;
  if (generation != generation_) {
    forget();
    return nullptr;
  }
  const BorrowedReading borrowed;
  Reading& reading = *borrowed;
  if (!read(values, grad_enabled, reading)) return nullptr;
  const std::shared_ptr<const Call> call = find(reading.bytes);  // what runs meanwhile may forget it
  if (call == nullptr) return nullptr;
  ResultMaker::Made results;
  if (call->maker != nullptr) {
    return launch(*call, reading, results) ? call->maker->wrap(results).release().ptr() : nullptr;
  }
  if (call->make.is_none()) {
    return launch(*call, reading, results) ? Py_NewRef(values.outs == nullptr ? Py_None : values.outs) : nullptr;
  }
  py::object made = make_by_python(*call, reading);
  if (made.is_none() || !launch(*call, reading, results)) return nullptr;
  return PyTuple_GET_SIZE(made.ptr()) == 1 ? Py_NewRef(PyTuple_GET_ITEM(made.ptr(), 0)) : made.release().ptr();
}

py::object CallReplays::make_by_python(const Call& call, Reading& reading) const {
  py::object made = py::reinterpret_steal<py::object>(PyObject_CallNoArgs(call.make.ptr()));
  if (!made) throw py::error_already_set();
  for (const py::handle result : made.cast<py::tuple>()) {
    if (!reader_.append_span(result, reading.spans)) return py::none();
  }
  return made;
}

void CallReplays::make_room(std::size_t grew) {
  graphs_ += grew;
  if (graphs_ <= kMostGraphs) return;
  std::vector<LaunchGraphs*> found;
  for (const auto& each : calls_) found.push_back(each.second->graphs.get());
  std::sort(found.begin(), found.end(),
            [](const LaunchGraphs* one, const LaunchGraphs* other) { return one->last_use() < other->last_use(); });
  for (LaunchGraphs* graphs : found) {
    if (graphs_ <= kMostGraphs / 2) break;
    graphs_ -= std::min(graphs_, graphs->clear());
  }
}

KeptWorkspaces::Workspace CallReplays::workspace_of(const Call& call, std::uintptr_t stream, bool plain) const {
  KeptWorkspaces::Workspace found{nullptr, call.device, stream, call.workspace_bytes};
  if (call.workspace_bytes == 0) return found;
  auto& kept = KeptWorkspaces::instance();
  if (plain) found = kept.take(call.device, stream, call.workspace_bytes);
  if (found.memory == nullptr) found.memory = reader_.allocate(call.device, call.workspace_bytes);
  if (found.memory == nullptr) {
    kept.clear();
    found.memory = reader_.allocate(call.device, call.workspace_bytes);
  }
  return found;
}

bool CallReplays::launch(const Call& call, Reading& reading, ResultMaker::Made& results) {
  auto& spans = reading.spans;
  const std::uintptr_t stream = reader_.current_stream(call.device);
  const bool plain = DriverRuntime::instance().is_plain(reinterpret_cast<void*>(stream));
  KeptWorkspaces::Workspace workspace = workspace_of(call, stream, plain);
  if (call.workspace_bytes > 0 && workspace.memory == nullptr) return false;
  const auto make_launches = [&call, &reading]() -> std::vector<Launch>& {
    reading.launches.clear();
    for (const ReplayedLaunch& one : call.launches) {
      reading.launches.push_back({one.position, LaunchValues(one.values)});
      LaunchValues& values = reading.launches.back().values;
      for (const auto& address : one.addresses) {
        values[address.place] = static_cast<std::int64_t>(reading.addresses[address.tensor]) + address.offset;
      }
    }
    return reading.launches;
  };
  std::size_t grew = 0;
  {
    // The allocator and the driver may wait for the device, and what it waits for may need the interpreter.
    const ReleasedInterpreter released;
    if (call.maker != nullptr && !call.maker->make(results, spans)) return false;
    reading.addresses.clear();
    for (const auto& span : spans) reading.addresses.push_back(span.begin);
    if (workspace.memory != nullptr) {
      reading.addresses.push_back(reinterpret_cast<std::uintptr_t>(workspace.memory->tensor.data));
    }
    grew = call.graphs->launch(call.device, stream, plain, reading.addresses, std::cref(make_launches));
  }
  if (grew > 0) make_room(grew);
  if (plain && workspace.memory != nullptr) KeptWorkspaces::instance().give_back(std::move(workspace));
  return true;
}

bool CallReplays::remember(const py::tuple& args, const py::dict& kwargs, py::handle outs, py::handle wish,
                           bool grad_enabled, std::int64_t generation, const py::tuple& made,
                           py::handle made_workspace, int device, const py::list& launches, py::object make) {
  if (args.size() > names_.size()) return false;
  CallValues values{};
  for (std::size_t i = 0; i < args.size(); ++i) values.parameters[i] = PyTuple_GET_ITEM(args.ptr(), i);
  for (const auto& item : kwargs) {
    const int place = place_of(item.first.ptr());
    if (place < 0 || values.parameters[place] != nullptr) return false;
    values.parameters[place] = item.second.ptr();
  }
  values.outs = outs.ptr();
  values.wish = wish.ptr();
  Reading reading;
  if (!read(values, grad_enabled, reading)) return false;
  std::vector<PyObject*> tensors;
  for_values(values, names_.size(), made, made_workspace, [&](py::handle value) {
    if (reader_.is_tensor(value)) tensors.push_back(value.ptr());
  });
  auto& spans = reading.spans;
  for_values({}, 0, made, made_workspace, [&](py::handle value) { reader_.append_span(value, spans); });
  if (spans.size() != tensors.size()) return false;
  auto maker = py::isinstance<ResultMaker>(make) ? make.cast<std::shared_ptr<ResultMaker>>() : nullptr;
  Call call{device, {}, 0, std::move(maker), std::move(make), std::make_unique<LaunchGraphs>()};
  for (const py::handle launch : launches) {
    const auto pair = launch.cast<py::tuple>();
    ReplayedLaunch one{pair[0].cast<int>(), {}, {}};
    for (const py::handle value : pair[1].cast<py::tuple>()) {
      const auto number = value.cast<std::int64_t>();
      if (py::hasattr(value, "tensor")) {
        const py::object tensor = value.attr("tensor");
        if (std::count(tensors.begin(), tensors.end(), tensor.ptr()) != 1) return false;
        const auto which = std::find(tensors.begin(), tensors.end(), tensor.ptr()) - tensors.begin();
        const auto offset = number - static_cast<std::int64_t>(spans[which].begin);
        if (offset < 0 || (offset > 0 && offset >= static_cast<std::int64_t>(spans[which].end - spans[which].begin))) {
          return false;
        }
        one.addresses.push_back({one.values.size(), static_cast<std::size_t>(which), offset});
        if (tensor.is(made_workspace)) {  // a workspace that no launch uses is not made again
          call.workspace_bytes = static_cast<std::int64_t>(spans[which].end - spans[which].begin);
        }
      } else {
        // A number inside of a tensor is an address that lost its tensor.
        for (const auto& span : spans) {
          const auto address = static_cast<std::uintptr_t>(number);
          if (span.begin > 1U << 20 && address >= span.begin && address < span.end) return false;
        }
      }
      one.values.push_back(number);
    }
    call.launches.push_back(std::move(one));
  }
  if (generation != generation_ || calls_.size() >= kMostCalls) forget();
  generation_ = generation;
  calls_.insert_or_assign(std::move(reading.bytes), std::make_shared<const Call>(std::move(call)));
  return true;
}

}  // namespace msa_ops

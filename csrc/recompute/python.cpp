// One file: what Python sees of tapes, their memory and windows.
#include "recompute/python.h"

#include <pybind11/functional.h>
#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/jit/python/pybind_utils.h>

#include <array>

#include "recompute/hooks.h"
#include "recompute/recorder.h"
#include "recompute/tape.h"
#include "recompute/windows.h"
#include "storage/python.h"

namespace py = pybind11;

namespace bayplan::recompute {
namespace {

// One operator of a tape, as Python sees it.
struct NodeView {
  std::shared_ptr<Tape> tape;
  size_t index;

  const Node& node() const { return tape->nodes()[index]; }
};

Tape& tape_of(const NodeView& view) { return *view.tape; }
Tape& tape_of(Tape& tape) { return tape; }

// The same question, asked while nobody changes the tape.
template <typename Asked, typename Answer>
auto held(Answer (*ask)(Asked&)) {
  return [ask](Asked& asked) -> Answer {
    const Held lock(tape_of(asked));
    return ask(asked);
  };
}

// The results that it reads, each once: the node that made them, and their place among what it made.
std::vector<std::pair<NodeIndex, int32_t>> reads_of(const NodeView& view) {
  std::vector<std::pair<NodeIndex, int32_t>> reads;
  for (const Argument& argument : view.node().tensors) {
    if (argument.value == kNone) continue;
    const NodeIndex maker = view.tape->values()[argument.value].node;
    const std::vector<Made>& made = view.tape->nodes()[maker].made;
    const auto is_it = [&](const Made& one) { return one.value == argument.value; };
    const std::pair<NodeIndex, int32_t> read(maker, std::find_if(made.begin(), made.end(), is_it) - made.begin());
    if (std::find(reads.begin(), reads.end(), read) == reads.end()) reads.push_back(read);
  }
  return reads;
}

// Nodes whose results it reads, each once, in order.
std::vector<NodeIndex> inputs_of(const NodeView& view) {
  std::vector<NodeIndex> inputs;
  for (const Argument& argument : view.node().tensors) {
    if (argument.value == kNone) continue;
    const NodeIndex maker = view.tape->values()[argument.value].node;
    if (std::find(inputs.begin(), inputs.end(), maker) == inputs.end()) inputs.push_back(maker);
  }
  return inputs;
}

// The node whose result it writes in place, if it does.
std::optional<NodeIndex> writes_over(const NodeView& view) {
  for (const Made& made : view.node().made) {
    if (made.result == kNone) return view.tape->values()[view.node().tensors[made.argument].value].node;
  }
  return std::nullopt;
}

// The values that it reads, one for each tensor, and whether it writes them.
std::vector<std::pair<ValueIndex, bool>> arguments_of(const NodeView& view) {
  std::vector<std::pair<ValueIndex, bool>> found;
  for (const Argument& argument : view.node().tensors) {
    if (argument.value != kNone) found.emplace_back(argument.value, argument.written);
  }
  return found;
}

// The values that it made, and over which of them each is written; kNone: it is a storage of its own.
std::vector<std::pair<ValueIndex, ValueIndex>> results_of(const NodeView& view) {
  std::vector<std::pair<ValueIndex, ValueIndex>> found;
  for (const Made& made : view.node().made) {
    found.emplace_back(made.value, made.result == kNone ? view.node().tensors[made.argument].value : kNone);
  }
  return found;
}

// Whom it communicates with: the name of its group, or the group as scripts hold it; None where it does not say.
py::object group_of(const NodeView& view) {
  const Node& node = view.node();
  if (!node.recipe->info->communicates) return py::none();
  for (const char* name : {"group_name", "process_group"}) {
    const std::optional<int> place = node.recipe->op->schema().argumentIndexWithName(name);
    if (!place.has_value() || static_cast<size_t>(*place) >= node.arguments.size()) continue;
    return torch::jit::toPyObject(node.arguments[*place]);
  }
  return py::none();
}

template <typename Count>
int64_t sum(const NodeView& view, const Count& count) {
  int64_t total = 0;
  for (const Made& made : view.node().made) total += count(view.tape->values()[made.value]);
  return total;
}

// What it made: of each the bytes, and whether autograd has saved it.
std::vector<std::pair<int64_t, bool>> made_of(const NodeView& view) {
  std::vector<std::pair<int64_t, bool>> each;
  for (const Made& made : view.node().made) {
    const Value& value = view.tape->values()[made.value];
    each.emplace_back(value.bytes, value.ever_saved);
  }
  return each;
}

// A storage as a tensor of bytes.
at::Tensor bytes_of(const c10::Storage& storage) {
  Geometry whole;
  whole.extents = {static_cast<int64_t>(storage.nbytes()), 1};
  whole.dtype = at::kByte;
  whole.keys = c10::DispatchKeySet(c10::computeDispatchKey(at::kByte, at::kStrided, storage.device()));
  return whole.on(storage);
}

// The bytes that the tape holds of each result: a tensor over its storage, or None.
std::vector<std::optional<at::Tensor>> held_of(Tape& tape, NodeIndex node) {
  const Held lock(tape);
  std::vector<std::optional<at::Tensor>> found;
  for (const std::optional<c10::Storage>& storage : tape.held(node)) {
    found.push_back(storage.has_value() ? std::optional<at::Tensor>(bytes_of(*storage)) : std::nullopt);
  }
  return found;
}

// A tensor's storage, which does not live longer for it.
struct WeakBytes {
  explicit WeakBytes(const at::Tensor& tensor) : storage(tensor.storage().getWeakStorageImpl()) {}
  std::optional<at::Tensor> bytes() const {
    const auto held = storage.lock();
    return held ? std::optional<at::Tensor>(bytes_of(c10::Storage(held))) : std::nullopt;
  }
  c10::weak_intrusive_ptr<c10::StorageImpl> storage;
};

void bind_nodes(py::module_& module) {
  using View = const NodeView;
  py::class_<NodeView>(module, "TapeNode")
      .def_property_readonly("name", [](View& view) { return view.node().recipe->info->name; })
      .def_property_readonly("inputs", held<View>(&inputs_of))
      .def_property_readonly("reads", held<View>(&reads_of))
      .def_property_readonly("writes_over", held<View>(&writes_over))
      .def_property_readonly("communicates", [](View& view) { return view.node().recipe->info->communicates; })
      .def_property_readonly("group", &group_of)
      .def_property_readonly("random", [](View& view) { return view.node().recipe->random; })
      .def_property_readonly("why_stored", held<View>(+[](View& view) -> std::optional<std::string> {
                               if (view.node().runs_again) return std::nullopt;
                               return view.node().reason;
                             }))
      .def_property_readonly("stored", [](View& view) { return view.node().stored != kNothing; })
      .def_property_readonly("saved", held<View>(+[](View& view) {
                               return sum(view, [](const Value& value) { return value.ever_saved ? 1 : 0; }) > 0;
                             }))
      .def_property_readonly(
          "bytes", held<View>(+[](View& view) { return sum(view, [](const Value& value) { return value.bytes; }); }))
      .def_property_readonly("saved_bytes", held<View>(+[](View& view) {
                               return sum(view, [](const Value& value) { return value.ever_saved ? value.bytes : 0; });
                             }))
      .def_property_readonly("made", held<View>(&made_of))
      .def_property_readonly("present", held<View>(+[](View& view) {
                               return sum(view, [](const Value& value) { return value.present.has_value(); }) > 0;
                             }))
      .def_property_readonly("needed", held<View>(+[](View& view) {
                               return sum(view, [](const Value& value) { return value.needed() ? 1 : 0; }) > 0;
                             }))
      .def_property_readonly("time_us", [](View& view) { return view.tape->time_us(view.node()); })
      .def_property_readonly("arguments", held<View>(&arguments_of))
      .def_property_readonly("results", held<View>(&results_of));
}

std::vector<NodeView> nodes_of(const std::shared_ptr<Tape>& tape) {
  std::vector<NodeView> views;
  for (size_t index = 0; index < tape->nodes().size(); ++index) views.push_back({tape, index});
  return views;
}

// ---- the hooks on saved tensors: called for each of them, hence without pybind11 ------------------------------------

struct PackedObject {
  PyObject_HEAD Packed packed;
};

void free_packed(PyObject* object) {
  reinterpret_cast<PackedObject*>(object)->packed.~Packed();
  PyObject_Free(object);
}

PyObject* where_of(PyObject* object, void* /*closure*/) {
  HANDLE_TH_ERRORS
  return py::cast(reinterpret_cast<PackedObject*>(object)->packed.where()).release().ptr();
  END_HANDLE_TH_ERRORS
}

PyTypeObject* packed_type() {
  static PyGetSetDef properties[] = {{"where", &where_of, nullptr, nullptr, nullptr}, {}};
  static PyTypeObject type = [] {
    PyTypeObject fresh = {PyVarObject_HEAD_INIT(nullptr, 0)};
    fresh.tp_name = "runtime._C.PackedTensor";
    fresh.tp_basicsize = sizeof(PackedObject);
    fresh.tp_dealloc = &free_packed;
    fresh.tp_flags = Py_TPFLAGS_DEFAULT;
    fresh.tp_getset = properties;
    return fresh;
  }();
  return &type;
}

// Hook, called with what is saved; `wrapped` packs what stands for other tensors (subclasses), which is Python's to
// take apart.
PyObject* pack_hook(PyObject* wrapped, PyObject* saved) {
  HANDLE_TH_ERRORS
  TORCH_CHECK_TYPE(THPVariable_Check(saved), "pack takes a tensor, not ", Py_TYPE(saved)->tp_name);
  const at::Tensor& tensor = THPVariable_Unpack(saved);
  if (tensor.unsafeGetTensorImpl()->key_set().has(c10::DispatchKey::Python)) {
    return PyObject_CallOneArg(wrapped, saved);
  }
  auto* object = PyObject_New(PackedObject, packed_type());
  if (object == nullptr) throw python_error();
  new (&object->packed) Packed();
  auto owned = py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(object));
  pack(object->packed, tensor);
  return owned.release().ptr();
  END_HANDLE_TH_ERRORS
}

// Hook, called with what `pack_hook` returned; `wrapped` unpacks what its counterpart packed.
PyObject* unpack_hook(PyObject* wrapped, PyObject* packed) {
  HANDLE_TH_ERRORS
  if (Py_TYPE(packed) != packed_type()) return PyObject_CallOneArg(wrapped, packed);
  return THPVariable_Wrap(reinterpret_cast<PackedObject*>(packed)->packed.unpack());
  END_HANDLE_TH_ERRORS
}

py::object as_hook(PyMethodDef& hook, const py::object& wrapped) {
  return py::reinterpret_steal<py::object>(PyCFunction_New(&hook, wrapped.ptr()));
}

void bind_hooks(py::module_& module) {
  static PyMethodDef pack_method = {"pack", &pack_hook, METH_O, nullptr};
  static PyMethodDef unpack_method = {"unpack", &unpack_hook, METH_O, nullptr};
  if (PyType_Ready(packed_type()) < 0) throw py::error_already_set();
  module.attr("PackedTensor") = py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(packed_type()));
  module.def("pack_hook", [](const py::object& wrapped) { return as_hook(pack_method, wrapped); }, py::arg("wrapped"));
  module.def(
      "unpack_hook", [](const py::object& wrapped) { return as_hook(unpack_method, wrapped); }, py::arg("wrapped"));
  module.def(
      "set_python_hooks",
      [](const py::object& pack, const py::object& unpack) { set_python_hooks(pack.ptr(), unpack.ptr()); },
      py::arg("pack"), py::arg("unpack"));
}

// What torch.autograd.graph.saved_tensors_hooks does, in fewer calls.
void start_region(std::shared_ptr<Tape> tape, const py::object& unpack) {
  push_python_hooks(unpack.ptr());
  try {
    start_recording(std::move(tape));
  } catch (...) {
    pop_python_hooks();
    throw;
  }
}

void stop_region() {
  if (!stop_recording()) return;
  pop_python_hooks();
}

void bind_tape(py::module_& module) {
  py::class_<Policy, std::shared_ptr<Policy>>(module, "TapePolicy")
      .def(py::init([](std::vector<uint8_t> store, bool store_others, std::vector<std::string> names,
                       std::optional<int64_t> most_bytes) {
             return std::make_shared<Policy>(
                 Policy{std::move(store), store_others, std::move(names), most_bytes.value_or(Policy::kNoLimit)});
           }),
           py::arg("store"), py::arg("store_others"), py::arg("names"), py::arg("most_bytes"));
  py::class_<Tape, std::shared_ptr<Tape>>(module, "Tape")
      .def(py::init([](const c10::Device& device, std::shared_ptr<Policy> policy, bool timed) {
             return std::make_shared<Tape>(device, std::move(policy), timed);
           }),
           py::arg("device"), py::arg("policy"), py::arg("timed"))
      .def_property_readonly("nodes", &nodes_of)
      .def_property_readonly("finished", held<Tape>(+[](Tape& tape) { return tape.finished(); }))
      .def("tell", &Tape::tell, py::arg("log"))
      .def_property_readonly("value_bytes", held<Tape>(+[](Tape& tape) {
                               std::vector<int64_t> bytes;
                               for (const Value& value : tape.values()) bytes.push_back(value.bytes);
                               return bytes;
                             }))
      .def(
          "node_of",
          [](Tape& tape, const at::Tensor& tensor) -> std::optional<NodeIndex> {
            const Held lock(tape);
            const ValueIndex value = tape.find(tensor);
            return value == kNone ? std::nullopt : std::optional<NodeIndex>(tape.values()[value].node);
          },
          py::arg("tensor"))
      .def_property_readonly("diverged_at", &Tape::diverged_at)
      .def_property_readonly("asked_bytes", &Tape::asked_bytes)
      .def_property_readonly("groups", &Tape::groups)
      .def_property_readonly("present_bytes", held<Tape>(+[](Tape& tape) { return tape.present_bytes(); }))
      .def_property_readonly("again_us", held<Tape>(+[](Tape& tape) { return tape.again_us(); }))
      .def_property_readonly("replayed_on_demand", [](const Tape& tape) { return tape.replays().on_demand; })
      .def_property_readonly("replayed_ahead", [](const Tape& tape) { return tape.replays().ahead; })
      .def_property_readonly("left_out", [](const Tape& tape) { return tape.replays().left_out; })
      .def_property_readonly("copies", [](const Tape& tape) { return tape.replays().copies; })
      .def(
          "replay",
          [](Tape& tape, const std::vector<NodeIndex>& nodes, const std::vector<Result>& but) {
            int64_t ran = 0;
            swap::raise_in_python([&] { ran = tape.replay(nodes, but); });
            return ran;
          },
          py::arg("nodes"), py::arg("but") = std::vector<Result>())
      .def("drop", &Tape::drop, py::arg("nodes"), py::arg("but") = std::vector<Result>())
      .def("begin_retained", &Tape::begin_retained)
      .def("end_retained", &Tape::end_retained)
      .def("pause_before", &Tape::pause_before, py::arg("nodes"), py::arg("then"), py::arg("gathers"))
      .def("held", &held_of, py::arg("node"))
      .def("__len__", [](const Tape& tape) { return tape.nodes().size(); });
  py::class_<WeakBytes>(module, "WeakBytes")
      .def(py::init<const at::Tensor&>(), py::arg("tensor"))
      .def("bytes", &WeakBytes::bytes);
  module.def("start_recording", &start_region, py::arg("tape"), py::arg("unpack"));
  module.def("stop_recording", &stop_region);
  module.def("hold_idle_recorder", &hold_idle_recorder, py::arg("hold"));
  module.def(
      "note_write",
      [](const at::Tensor& tensor, const std::string& name, const std::string& group) {
        Tape* tape = recording_tape();
        if (tape == nullptr) return;
        if (!name.empty() && !inside_node() &&
            tape->pauses()) {  // a group's own collective, of which no operator tells
          const NotRecording quiet;
          tape->pause();
        }
        tape->begin_write(tensor, inside_node() ? "" : name);
        tape->add_group(group);
      },
      py::arg("tensor"), py::arg("name") = "", py::arg("group") = "");
  module.def(
      "set_secret_writes",
      [](const std::string& name, std::vector<std::string> arguments, std::optional<std::string> condition) {
        set_secret_writes(name, {std::move(arguments), std::move(condition)});
      },
      py::arg("name"), py::arg("arguments"), py::arg("condition"));
}

using LaunchNumbers = std::array<int64_t, 8>;

std::optional<std::vector<LaunchNumbers>> launches_of(MemoryLog& log) {
  const auto told = log.launches();
  if (!told.has_value()) return std::nullopt;
  std::vector<LaunchNumbers> all;
  for (const LaunchTimes& one : *told) {
    all.push_back({one.device, one.launch, one.end, one.host_waited, one.read, one.sent, one.beside, one.stream});
  }
  return all;
}

void bind_memory(py::module_& module) {
  py::class_<MemoryLog, std::shared_ptr<MemoryLog>>(module, "MemoryLog")
      .def(py::init<c10::Device>(), py::arg("device"))
      .def(
          "mark", [](MemoryLog& log, int32_t name) { log.note(MemoryLog::kNobody, Happened::kMark, name); },
          py::arg("name"))
      .def(
          "follow",
          [](MemoryLog& log, int32_t tape, int32_t index, const at::Tensor& tensor) {
            log.follow(tape, index, tensor.storage());
          },
          py::arg("tape"), py::arg("index"), py::arg("tensor"))
      .def("stop", &MemoryLog::stop)
      .def("launches", &launches_of)
      .def_property_readonly("requests",
                             [](const MemoryLog& log) {
                               std::vector<int64_t> all;
                               for (const MemoryEvent& one : log.events()) all.push_back(one.requests);
                               return all;
                             })
      .def_property_readonly("places",
                             [](const MemoryLog& log) {
                               std::vector<std::tuple<int32_t, int32_t, uint64_t, size_t>> all;
                               for (const MemoryPlace& one : log.places())
                                 all.emplace_back(one.tape, one.value, one.address, one.event);
                               return all;
                             })
      .def_property_readonly("events", [](const MemoryLog& log) {
        using Told = std::tuple<int32_t, uint8_t, int32_t, int64_t, int64_t>;
        std::vector<Told> all;
        for (const MemoryEvent& one : log.events()) {
          all.emplace_back(one.tape, static_cast<uint8_t>(one.what), one.index, one.before_bytes, one.bytes);
        }
        return all;
      });
}

}  // namespace

void bind_recompute(py::module_& module) {
  bind_memory(module);
  bind_nodes(module);
  bind_tape(module);
  bind_hooks(module);
  py::class_<Windows, std::shared_ptr<Windows>>(module, "Windows")
      .def(py::init([](const c10::Device& device, bool timed) { return std::make_shared<Windows>(device, timed); }),
           py::arg("device"), py::arg("timed"))
      .def("mark", &Windows::mark)
      .def("at_us", &Windows::at_us, py::arg("mark"))
      .def_property_readonly("waits", &Windows::waits)
      .def("tell", &Windows::tell, py::arg("log"))
      .def("watch", &Windows::watch)
      .def("stop", &Windows::stop)
      .def("plan", &Windows::plan, py::arg("windows"), py::arg("in_wait") = py::none())
      .def("pause_after", &Windows::pause_after, py::arg("operators"), py::arg("then"))
      .def("end_pauses", &Windows::end_pauses)
      .def("open", &Windows::open)
      .def_property_readonly("opened", &Windows::opened);
  module.def("begin_wait", &Windows::begin_wait_on, py::arg("device"));
  module.def("end_wait", &Windows::end_wait_on, py::arg("device"));
}

}  // namespace bayplan::recompute

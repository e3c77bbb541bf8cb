#include "swap/python.h"

#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include "swap/guard.h"
#include "swap/session.h"
#include "swap/step.h"

namespace py = pybind11;

namespace bayplan::swap {
namespace {

c10::StorageImpl& storage_of(const at::Tensor& tensor) {
  TORCH_CHECK(tensor.defined() && tensor.unsafeGetTensorImpl()->has_storage(),
              "this tensor has no storage of its own (it is undefined or sparse): only strided tensors can be swapped");
  return *tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
}

void bind_program(py::module_& module) {
  py::enum_<Deed>(module, "SwapDeed")
      .value("RELEASE", Deed::kRelease)
      .value("SWAP_IN", Deed::kSwapIn)
      .value("SWAP_OUT", Deed::kSwapOut);
  py::class_<Wait>(module, "SwapWait")
      .def(py::init([](uint32_t action, bool frontier) { return Wait{action, frontier}; }), py::arg("action"),
           py::arg("frontier"));
  py::class_<Action>(module, "SwapAction")
      .def(py::init([](Deed deed, uint32_t id, std::vector<uint32_t> slots, std::vector<Wait> waits, bool awaited) {
             return Action{deed, id, std::move(slots), std::move(waits), awaited};
           }),
           py::arg("deed"), py::arg("id"), py::arg("slots"), py::arg("waits"), py::arg("awaited"));
  py::class_<Locator>(module, "SwapLocator")
      .def(py::init([](uint32_t position, uint32_t slot) { return Locator{position, slot}; }), py::arg("position"),
           py::arg("slot"));
  py::class_<Slot>(module, "SwapSlot")
      .def(py::init([](std::string label, uint64_t bytes) { return Slot{std::move(label), bytes}; }), py::arg("label"),
           py::arg("bytes"));
  py::class_<OpRow>(module, "SwapRow")
      .def(py::init([](std::string name, uint32_t id, bool awaited, std::vector<Locator> arguments,
                       std::vector<Locator> results, std::vector<Locator> inner, bool returns,
                       const std::vector<std::pair<uint32_t, uint64_t>>& sizes, std::vector<Action> before,
                       std::vector<Wait> waits, std::vector<uint32_t> arrivals, std::vector<Action> after) {
             std::vector<ResultSize> listed;
             for (const auto& [position, bytes] : sizes) listed.push_back({position, bytes});
             return OpRow{std::move(name),
                          id,
                          awaited,
                          std::move(arguments),
                          std::move(results),
                          std::move(inner),
                          returns,
                          std::move(listed),
                          std::move(before),
                          std::move(waits),
                          std::move(arrivals),
                          std::move(after)};
           }),
           py::arg("name"), py::arg("id"), py::arg("awaited"), py::arg("arguments"), py::arg("results"),
           py::arg("inner"), py::arg("returns"), py::arg("sizes"), py::arg("before"), py::arg("waits"),
           py::arg("arrivals"), py::arg("after"));
  py::class_<Program>(module, "SwapProgram")
      .def(py::init([](std::vector<OpRow> rows, std::vector<Slot> slots, uint32_t actions) {
             return Program{std::move(rows), std::move(slots), actions};
           }),
           py::arg("rows"), py::arg("slots"), py::arg("actions"));
}

void bind_outcome(py::module_& module) {
  py::class_<StoreCounts>(module, "SwapCounts")
      .def_readonly("swapped_out", &StoreCounts::swapped_out)
      .def_readonly("swapped_in", &StoreCounts::swapped_in)
      .def_readonly("fetched", &StoreCounts::fetched)
      .def_readonly("cancelled", &StoreCounts::cancelled)
      .def_readonly("early", &StoreCounts::early)
      .def_readonly("died", &StoreCounts::died)
      .def_readonly("out_bytes", &StoreCounts::out_bytes)
      .def_readonly("in_bytes", &StoreCounts::in_bytes);
  py::class_<Outcome>(module, "SwapOutcome")
      .def_readonly("operators", &Outcome::operators)
      .def_readonly("followed", &Outcome::followed)
      .def_readonly("departure", &Outcome::departure)
      .def_readonly("failed", &Outcome::failed)
      .def_readonly("difference", &Outcome::difference)
      .def_readonly("refused", &Outcome::refused)
      .def_readonly("postponed", &Outcome::postponed)
      .def_readonly("left_out", &Outcome::left_out)
      .def_readonly("peak_bytes", &Outcome::peak_bytes)
      .def_readonly("host_peak_bytes", &Outcome::host_peak_bytes)
      .def_readonly("counts", &Outcome::counts);
  py::class_<HostStats>(module, "SwapHostStats")
      .def_readonly("held_bytes", &HostStats::held_bytes)
      .def_readonly("used_bytes", &HostStats::used_bytes)
      .def_readonly("peak_held_bytes", &HostStats::peak_held_bytes)
      .def_readonly("allocations", &HostStats::allocations)
      .def_readonly("reuses", &HostStats::reuses);
}

PyObject* host_memory_short = nullptr;

// An OutOfMemoryError arrives in Python as torch.OutOfMemoryError, and so on.
template <typename Kept>
void raise_error(Kept& kept) {
  HANDLE_TH_ERRORS
  try {
    kept.raise_error();
  } catch (const HostMemoryShort& error) {
    PyErr_SetString(host_memory_short, error.what());
    throw py::error_already_set();
  }
  END_HANDLE_TH_ERRORS_PYBIND
}

// (action, begin, end) and the like: times in microseconds from the step's begin.
using Times = std::vector<std::tuple<uint32_t, double, double>>;

template <typename Item, typename Key>
Times times(const Step& step, const std::vector<Item>& items, Key key) {
  Times all;
  for (const Item& item : items)
    all.emplace_back(key(item), step.tape().at_us(item.begin), step.tape().at_us(item.end));
  return all;
}

void bind_step(py::module_& module) {
  py::class_<Step>(module, "SwapStep")
      .def(py::init<Program, c10::Device, bool>(), py::arg("program"), py::arg("device"), py::arg("traced"))
      .def("begin", torch::wrap_pybind_function_no_gil([](Step& step) { step.begin(); }))
      .def("end", torch::wrap_pybind_function_no_gil([](Step& step) { return step.end(); }))
      .def("failed", &Step::failed)
      .def("raise_error", &raise_error<Step>)
      .def("makespan_us", torch::wrap_pybind_function_no_gil([](const Step& step) { return step.makespan_us(); }))
      .def("spans", torch::wrap_pybind_function_no_gil([](const Step& step) {
             return times(step, step.spans(), [](const TimedSpan& span) { return span.action; });
           }))
      .def("stalls", torch::wrap_pybind_function_no_gil([](const Step& step) {
             return times(step, step.stalls(), [](const Stall& stall) { return static_cast<uint32_t>(stall.cause); });
           }))
      .def("memory", torch::wrap_pybind_function_no_gil([](const Step& step) {
             std::vector<std::tuple<double, uint64_t, uint64_t>> samples;
             for (const MemorySample& sample : step.memory()) {
               samples.emplace_back(step.tape().at_us(sample.mark), sample.bytes, sample.peak_bytes);
             }
             return samples;
           }));
}

void set_observer(const std::optional<py::capsule>& capsule) {
  HandoverObserver observer = nullptr;
  if (capsule.has_value()) {
    observer = reinterpret_cast<HandoverObserver>(PyCapsule_GetPointer(capsule->ptr(), "bayplan.handover"));
    if (observer == nullptr) throw py::error_already_set();
  }
  Store& store = Store::get();
  const std::lock_guard<std::recursive_mutex> held(store.lock);
  store.set_handover_observer(observer);
}

void bind_store(py::module_& module) {
  module.def("ensure_in", torch::wrap_pybind_function_no_gil([](const at::Tensor& tensor) {
               Store::get().ensure_in(storage_of(tensor), Users::kAnyStream);
             }));
  module.def("ensure_in_storage", torch::wrap_pybind_function_no_gil([](uintptr_t storage) {
               Store::get().ensure_in(*reinterpret_cast<c10::StorageImpl*>(storage), Users::kAnyStream);
             }));
  module.def("hold_storage", torch::wrap_pybind_function_no_gil([](uintptr_t address, bool for_life) {
               auto& storage = *reinterpret_cast<c10::StorageImpl*>(address);
               if (for_life) return Store::get().hold_for_life(storage);
               if (Step* step = Step::active()) step->hold(storage);
               if (Session* session = Session::active()) session->hold(storage);
             }));
  module.def("swap_out", torch::wrap_pybind_function_no_gil([](const at::Tensor& tensor) {
               refresh_guard();
               Store::get().park(storage_of(tensor));
             }));
  module.def("why_it_stays", [](const at::Tensor& tensor) -> std::optional<std::string> {
    const char* reason = Store::why_it_stays(storage_of(tensor));
    return reason == nullptr ? std::nullopt : std::optional<std::string>(reason);
  });
  module.def("is_out", [](const at::Tensor& tensor) {
    return tensor.unsafeGetTensorImpl()->has_storage() && Store::entry_of(storage_of(tensor)) != nullptr;
  });
  module.def("swapped_out_storages", [] { return Store::get().absent(); });
  module.def("set_host_limit", torch::wrap_pybind_function_no_gil([](std::optional<uint64_t> bytes) {
               const std::lock_guard<std::recursive_mutex> held(Store::get().lock);
               Store::get().host().set_limit(bytes);
             }));
  module.def("host_stats", torch::wrap_pybind_function_no_gil([] {
               const std::lock_guard<std::recursive_mutex> held(Store::get().lock);
               return HostStats(Store::get().host().stats());
             }));
  module.def("trim_host", torch::wrap_pybind_function_no_gil([] {
               const std::lock_guard<std::recursive_mutex> held(Store::get().lock);
               Store::get().host().trim();
             }));
  module.def("set_handover_observer", &set_observer, py::arg("observer"));
  module.def("hold_swap_guard", torch::wrap_pybind_function_no_gil([](bool hold) { hold_guard(hold); }));
  module.def("hold_idle_observer", torch::wrap_pybind_function_no_gil([](bool hold) { hold_idle_observer(hold); }));
  module.def("swap_guard_is_on", [] { return guard_is_on(); });
}

}  // namespace

void raise_session_error(Session& session) { raise_error(session); }

void bind_swap(py::module_& module) {
  host_memory_short = py::exception<HostMemoryShort>(module, "HostMemoryShort", PyExc_MemoryError).release().ptr();
  bind_program(module);
  bind_outcome(module);
  bind_step(module);
  bind_store(module);
  bind_session(module);
}

}  // namespace bayplan::swap

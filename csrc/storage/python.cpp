#include "storage/python.h"

#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "storage/action_kind.h"
#include "storage/store.h"

namespace py = pybind11;

namespace bayplan::swap {
namespace {

PyObject* host_memory_short = nullptr;

void bind_types(py::module_& module) {
  py::enum_<ActionKind>(module, "SwapActionKind")
      .value("RELEASE", ActionKind::kRelease)
      .value("SWAP_IN", ActionKind::kSwapIn)
      .value("SWAP_OUT", ActionKind::kSwapOut);
  py::class_<StoreCounts>(module, "SwapCounts")
      .def_readonly("swapped_out", &StoreCounts::swapped_out)
      .def_readonly("swapped_in", &StoreCounts::swapped_in)
      .def_readonly("fetched", &StoreCounts::fetched)
      .def_readonly("cancelled", &StoreCounts::cancelled)
      .def_readonly("early", &StoreCounts::early)
      .def_readonly("died", &StoreCounts::died)
      .def_readonly("out_bytes", &StoreCounts::out_bytes)
      .def_readonly("in_bytes", &StoreCounts::in_bytes);
  py::class_<HostStats>(module, "SwapHostStats")
      .def_readonly("held_bytes", &HostStats::held_bytes)
      .def_readonly("used_bytes", &HostStats::used_bytes)
      .def_readonly("peak_held_bytes", &HostStats::peak_held_bytes)
      .def_readonly("peak_used_bytes", &HostStats::peak_used_bytes)
      .def_readonly("allocations", &HostStats::allocations)
      .def_readonly("reuses", &HostStats::reuses)
      .def_readonly("unserved", &HostStats::unserved)
      .def_readonly("fallback", &HostStats::fallback);
}

void set_observer(const std::optional<py::capsule>& capsule) {
  HandoverObserver observer = nullptr;
  if (capsule.has_value()) {
    observer = reinterpret_cast<HandoverObserver>(PyCapsule_GetPointer(capsule->ptr(), "bayplan.handover"));
    if (observer == nullptr) throw py::error_already_set();
  }
  Store::set_handover_observer(observer);
}

using OptionalDevice = std::optional<c10::Device>;

// Runs on the pool of a device, which its store locks; without one on each.
template <typename Body>
void with_host(const OptionalDevice& device, const Body& body) {
  const auto locked = [&](Store& store) {
    const Lock held(store.lock);
    body(store.host());
  };
  device.has_value() ? locked(Store::of(*device)) : Store::for_each(locked);
}

// Of all devices: sums, and what one of them says of its fallback. Peaks need not have been at one time.
HostStats host_stats(const OptionalDevice& device) {
  HostStats all;
  with_host(device, [&](const HostPool& host) {
    const HostStats& own = host.stats();
    all.held_bytes += own.held_bytes;
    all.used_bytes += own.used_bytes;
    all.peak_held_bytes += own.peak_held_bytes;
    all.peak_used_bytes += own.peak_used_bytes;
    all.allocations += own.allocations;
    all.reuses += own.reuses;
    all.unserved += own.unserved;
    if (!own.fallback.empty()) all.fallback = own.fallback;
  });
  return all;
}

void bind_host(py::module_& module) {
  using torch::wrap_pybind_function_no_gil;
  const auto of_all = py::arg("device") = py::none();
  module.def("set_host_limit",
             wrap_pybind_function_no_gil([](std::optional<uint64_t> bytes, const OptionalDevice& device) {
               if (!device.has_value()) HostPool::set_first_limit(bytes);
               with_host(device, [&](HostPool& host) { host.set_limit(bytes); });
             }),
             py::arg("bytes"), of_all);
  module.def("host_stats", wrap_pybind_function_no_gil(&host_stats), of_all);
  module.def("trim_host", wrap_pybind_function_no_gil([](const OptionalDevice& device) {
               with_host(device, [](HostPool& host) { host.trim(); });
             }),
             of_all);
  module.def("reset_host_peak", wrap_pybind_function_no_gil([](const OptionalDevice& device) {
               with_host(device, [](HostPool& host) { host.reset_peak(); });
             }),
             of_all);
  module.def("reserve_host", wrap_pybind_function_no_gil([](uint64_t bytes, c10::Device device) {
               with_host(device, [&](HostPool& host) { host.reserve(bytes, device.type()); });
             }));
  module.def("arena_bytes", torch::wrap_pybind_function_no_gil(&arena_bytes));
  module.def("host_is_exact", torch::wrap_pybind_function_no_gil([](c10::Device device) {
               bool exact = false;
               with_host(device, [&](const HostPool& host) { exact = host.exact(device.type()); });
               return exact;
             }));
  module.def("set_host_arenas", wrap_pybind_function_no_gil([](bool on) { HostPool::set_arenas(on); }));
  module.def("events_made", [] { return events_made(); });
}

void set_host_registrar(const std::optional<py::capsule>& capsule) {
  const HostRegistrar* registrar = nullptr;
  if (capsule.has_value()) {
    registrar = static_cast<const HostRegistrar*>(PyCapsule_GetPointer(capsule->ptr(), "bayplan.registrar"));
    if (registrar == nullptr) throw py::error_already_set();
  }
  set_registrar(registrar);
}

void bring_in(c10::StorageImpl& storage) { Store::of(storage.device()).ensure_in(storage, Users::kAnyStream); }

// The end of the copy out is awaited here, so that nobody can forget it.
void give_block_back(const at::Tensor& tensor) {
  c10::StorageImpl& storage = storage_of(tensor);
  Store& store = Store::of(storage.device());
  const Lock held(store.lock);
  const Entry* entry = Store::entry_of(storage);
  if (entry == nullptr || entry->place != Place::kLeaving) return;
  entry->copied_out->block(entry->home);
  store.release(storage);
}

// All blocks are allocated before the first copy is queued: the lane comes after what used their bytes before.
int64_t begin_swap_in(const std::vector<at::Tensor>& tensors) {
  if (tensors.empty()) return 0;
  Store& store = Store::of(tensors.front().device());
  const Lock held(store.lock);
  std::vector<std::pair<c10::StorageImpl*, c10::DataPtr>> arrivals;
  for (const at::Tensor& tensor : tensors) {
    c10::StorageImpl& storage = storage_of(tensor);
    const Entry* entry = Store::entry_of(storage);
    const bool twice =
        std::any_of(arrivals.begin(), arrivals.end(), [&](const auto& one) { return one.first == &storage; });
    if (entry == nullptr || entry->place != Place::kAway || twice) continue;
    arrivals.emplace_back(&storage, store.allocate(*entry));
  }
  for (auto& [storage, block] : arrivals) {
    const Entry* entry = Store::entry_of(*storage);
    const c10::Stream lane = lanes_of(entry->device).in;
    record_on(entry->home)->block(lane);
    entry->copied_out->block(lane);
    store.swap_in(*storage, std::move(block));
  }
  return static_cast<int64_t>(arrivals.size());
}

void arrive(const at::Tensor& tensor) {
  c10::StorageImpl& storage = storage_of(tensor);
  Store::of(storage.device()).ensure_in(storage, Users::kAsker);
}

void bind_moves(py::module_& module) {
  module.def("copy_lanes", [](c10::Device device) {
    const Lanes& lanes = lanes_of(device);
    return std::make_pair(lanes.in, lanes.out);
  });
  module.def("give_block_back", torch::wrap_pybind_function_no_gil(&give_block_back));
  module.def("begin_swap_in", torch::wrap_pybind_function_no_gil(&begin_swap_in));
  module.def("arrive", torch::wrap_pybind_function_no_gil(&arrive));
}

void bind_memory(py::module_& module) {
  module.def("ensure_in",
             torch::wrap_pybind_function_no_gil([](const at::Tensor& tensor) { bring_in(storage_of(tensor)); }));
  module.def("ensure_in_storage", torch::wrap_pybind_function_no_gil([](uintptr_t storage) {
               bring_in(*reinterpret_cast<c10::StorageImpl*>(storage));
             }));
  module.def("why_it_stays", [](const at::Tensor& tensor) -> std::optional<std::string> {
    const char* reason = Store::why_it_stays(storage_of(tensor));
    return reason == nullptr ? std::nullopt : std::optional<std::string>(reason);
  });
  module.def("is_out", [](const at::Tensor& tensor) {
    return tensor.unsafeGetTensorImpl()->has_storage() && Store::entry_of(storage_of(tensor)) != nullptr;
  });
  module.def("swapped_out_storages", [] { return absent_storages.load(); });
  module.def("set_handover_observer", &set_observer, py::arg("observer"));
  module.def("set_host_registrar", &set_host_registrar, py::arg("registrar"));
}

}  // namespace

c10::StorageImpl& storage_of(const at::Tensor& tensor) {
  TORCH_CHECK(tensor.defined() && tensor.unsafeGetTensorImpl()->has_storage(),
              "this tensor has no storage of its own (it is undefined or sparse): only strided tensors can be swapped");
  return *tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
}

void raise_in_python(const std::function<void()>& throwing) {
  HANDLE_TH_ERRORS
  try {
    throwing();
  } catch (const HostMemoryShort& error) {
    PyErr_SetString(host_memory_short, error.what());
    throw py::error_already_set();
  }
  END_HANDLE_TH_ERRORS_PYBIND
}

void bind_storage(py::module_& module) {
  host_memory_short = py::exception<HostMemoryShort>(module, "HostMemoryShort", PyExc_MemoryError).release().ptr();
  bind_types(module);
  bind_memory(module);
  bind_moves(module);
  bind_host(module);
}

}  // namespace bayplan::swap

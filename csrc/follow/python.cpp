#include "follow/python.h"

#include <ATen/record_function.h>
#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>

#include <optional>
#include <vector>

#include "follow/again.h"
#include "follow/follower.h"
#include "follow/guard.h"
#include "follow/relief.h"
#include "storage/python.h"
#include "storage/store.h"

namespace py = pybind11;
using namespace py::literals;

namespace bayplan::swap {
namespace {

template <typename Visit>
void for_each_on_devices(const std::vector<at::Tensor>& tensors, const Visit& visit) {
  for (const at::Tensor& tensor : tensors) {
    if (tensor.is_cpu() || !tensor.unsafeGetTensorImpl()->has_storage()) continue;
    c10::StorageImpl& storage = storage_of(tensor);
    visit(storage, Store::of(storage.device()));
  }
}

void let_go_of_all(const std::vector<at::Tensor>& tensors) {
  for_each_on_devices(tensors, [](c10::StorageImpl& storage, Store& store) { store.let_go(storage); });
}

// All stay first, so that one which comes back sends no other away.
void hold_all(const std::vector<at::Tensor>& tensors) {
  for_each_on_devices(tensors, [](c10::StorageImpl& storage, Store& store) { store.hold(storage); });
  try {
    for_each_on_devices(tensors, [](c10::StorageImpl& storage, Store& store) {
      if (Store::entry_of(storage) == nullptr) return;
      Follower* follower = Follower::active(storage.device());
      follower != nullptr ? follower->demand(storage) : void(store.ensure_in(storage, Users::kAnyStream));
    });
  } catch (...) {
    let_go_of_all(tensors);
    throw;
  }
}

}  // namespace

void bind_follow(py::module_& module) {
  module.def("hold_storage", torch::wrap_pybind_function_no_gil([](uintptr_t address, bool for_life) {
               auto& storage = *reinterpret_cast<c10::StorageImpl*>(address);
               if (for_life) return Store::of(storage.device()).hold(storage);
               if (Follower* follower = Follower::active(storage.device())) follower->hold(storage);
             }));
  module.def("hold_storages", torch::wrap_pybind_function_no_gil(&hold_all));
  module.def("let_go_of_storages", torch::wrap_pybind_function_no_gil(&let_go_of_all));
  module.def("swap_out", torch::wrap_pybind_function_no_gil([](const at::Tensor& tensor) {
               refresh_guard();
               c10::StorageImpl& storage = storage_of(tensor);
               Store::of(storage.device()).park(storage);
             }));
  module.def("begin_swap_out", torch::wrap_pybind_function_no_gil([](const at::Tensor& tensor) {
               refresh_guard();
               c10::StorageImpl& storage = storage_of(tensor);
               Store::of(storage.device()).swap_out(storage, current_stream(storage.device()), /*for_all=*/true);
             }));
  module.def("hold_swap_guard", torch::wrap_pybind_function_no_gil([](bool hold) { hold_guard(hold); }));
  module.def("hold_idle_observer", torch::wrap_pybind_function_no_gil([](bool hold) { hold_idle_observer(hold); }));
  module.def("swap_guard_is_on", [] { return guard_is_on(); });
  module.def("swap_guard_has_results", [] { return guard_has_results(); });
  module.def("pressure_handler", [] {
    return py::capsule(reinterpret_cast<void*>(PressureHandler{&answer_pressure}), "bayplan.pressure");
  });
  module.def("relief_callback",
             [] { return py::capsule(reinterpret_cast<void*>(ReliefCallback{&answer_under_lock}), "bayplan.relief"); });
  module.def("set_secret_writer", &set_secret_writer);
  module.def("is_repeatable", [](const std::string& name, const std::string& overload) {
    return is_repeatable(c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), overload.c_str()));
  });
  module.def("run_again", &run_again);
  module.def("listen_to_cuda", &listen_to_cuda);
  module.def("answer_under_lock", torch::wrap_pybind_function_no_gil(&answer_under_lock));
  module.def("relief_counts", [] {
    const ReliefCounts counts = relief_counts();
    const ForbiddenWaits forbidden = forbidden_waits();
    return py::dict("under_lock"_a = counts.under_lock, "refused"_a = counts.refused, "unlocked"_a = counts.unlocked,
                    "waits"_a = counts.waits, "caught_up"_a = counts.caught_up,
                    "waits_under_lock"_a = forbidden.under_lock, "waits_with_store"_a = forbidden.with_store);
  });
  module.def("hold_unobserved", [](bool hold) {
    thread_local std::optional<at::DisableRecordFunctionGuard> held;
    hold ? void(held.emplace()) : held.reset();
  });
  module.def("hold_without_waits", [](bool hold) {
    thread_local std::optional<WithoutWaits> held;
    hold ? void(held.emplace()) : held.reset();
  });
}

}  // namespace bayplan::swap

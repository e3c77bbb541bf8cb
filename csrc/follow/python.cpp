#include "follow/python.h"

#include <torch/csrc/Exceptions.h>

#include <optional>

#include "follow/follower.h"
#include "follow/guard.h"
#include "follow/relief.h"
#include "storage/python.h"
#include "storage/store.h"

namespace py = pybind11;
using namespace py::literals;

namespace bayplan::swap {

void bind_follow(py::module_& module) {
  module.def("hold_storage", torch::wrap_pybind_function_no_gil([](uintptr_t address, bool for_life) {
               auto& storage = *reinterpret_cast<c10::StorageImpl*>(address);
               if (for_life) return Store::get().hold_for_life(storage);
               if (Follower* follower = Follower::active()) follower->hold(storage);
             }));
  module.def("swap_out", torch::wrap_pybind_function_no_gil([](const at::Tensor& tensor) {
               refresh_guard();
               Store::get().park(storage_of(tensor));
             }));
  module.def("hold_swap_guard", torch::wrap_pybind_function_no_gil([](bool hold) { hold_guard(hold); }));
  module.def("hold_idle_observer", torch::wrap_pybind_function_no_gil([](bool hold) { hold_idle_observer(hold); }));
  module.def("swap_guard_is_on", [] { return guard_is_on(); });
  module.def("pressure_handler", [] {
    return py::capsule(reinterpret_cast<void*>(PressureHandler{&answer_pressure}), "bayplan.pressure");
  });
  module.def("relief_callback",
             [] { return py::capsule(reinterpret_cast<void*>(ReliefCallback{&answer_under_lock}), "bayplan.relief"); });
  module.def("listen_to_cuda", &listen_to_cuda);
  module.def("answer_under_lock", torch::wrap_pybind_function_no_gil(&answer_under_lock));
  module.def("relief_counts", [] {
    const ReliefCounts counts = relief_counts();
    const ForbiddenWaits forbidden = forbidden_waits();
    return py::dict("under_lock"_a = counts.under_lock, "refused"_a = counts.refused, "unlocked"_a = counts.unlocked,
                    "waits"_a = counts.waits, "caught_up"_a = counts.caught_up,
                    "waits_under_lock"_a = forbidden.under_lock, "waits_with_store"_a = forbidden.with_store);
  });
  module.def("hold_without_waits", [](bool hold) {
    thread_local std::optional<WithoutWaits> held;
    hold ? void(held.emplace()) : held.reset();
  });
}

}  // namespace bayplan::swap

#include "session/python.h"

#include <pybind11/functional.h>
#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include "session/session.h"
#include "storage/python.h"

namespace py = pybind11;

namespace bayplan::swap {
namespace {

void bind_policy(py::module_& module) {
  py::class_<Target>(module, "SwapTarget")
      .def(py::init([](std::string label, uint64_t bytes, uint64_t key, uint32_t ordinal, uint32_t op,
                       uint32_t position, bool result, uint64_t least_pass_bytes, uint32_t landmark, uint32_t since,
                       uint32_t latest_op, uintptr_t storage) {
             return Target{std::move(label),  bytes,     key,    ordinal, op, position, result, least_pass_bytes,
                           {landmark, since}, latest_op, storage};
           }),
           py::arg("label"), py::arg("bytes"), py::arg("key"), py::arg("ordinal"), py::arg("op"), py::arg("position"),
           py::arg("result") = false, py::arg("least_pass_bytes") = 0, py::arg("landmark") = 0, py::arg("since") = 0,
           py::arg("latest_op") = 0, py::arg("storage") = 0);
  py::class_<Event>(module, "SwapEvent")
      .def(py::init([](unsigned phase, uint32_t id, uint32_t ordinal, uint32_t op, ActionKind kind,
                       std::vector<uint32_t> targets, uint32_t landmark, uint32_t since) {
             TORCH_CHECK(phase < kPhases, "phase is ", phase, ", outside 0…", kPhases - 1);
             return Event{{static_cast<Phase>(phase), id, ordinal, op}, kind, std::move(targets), {landmark, since}};
           }),
           py::arg("phase"), py::arg("operator"), py::arg("ordinal"), py::arg("op"), py::arg("kind"),
           py::arg("targets"), py::arg("landmark") = 0, py::arg("since") = 0);
  py::class_<Landmark>(module, "SwapLandmark")
      .def(py::init([](uintptr_t storage, unsigned phase, uint32_t turn, uint32_t op) {
             TORCH_CHECK(phase < kPhases, "phase is ", phase, ", outside 0…", kPhases - 1);
             return Landmark{storage, static_cast<Phase>(phase), turn, op};
           }),
           py::arg("storage"), py::arg("phase"), py::arg("turn"), py::arg("op") = 0);
  py::class_<Pace>(module, "SwapPace")
      .def(py::init([](std::vector<uint32_t> reads, double latency, double per_byte) {
             return Pace{std::move(reads), latency, per_byte};
           }),
           py::arg("reads"), py::arg("latency"), py::arg("per_byte"));
  py::class_<Policy>(module, "SwapPolicy")
      .def(py::init([](std::vector<Target> targets, std::vector<Event> events,
                       std::vector<std::pair<uint32_t, uint32_t>> arrivals, bool on_demand,
                       std::vector<Landmark> landmarks, Pace pace) {
             return Policy{std::move(targets), std::move(events),    std::move(arrivals),
                           on_demand,          std::move(landmarks), std::move(pace)};
           }),
           py::arg("targets"), py::arg("events"), py::arg("arrivals"), py::arg("on_demand") = false,
           py::arg("landmarks") = std::vector<Landmark>(), py::arg("pace") = Pace());
}

void bind_counts(py::module_& module) {
  py::class_<SessionCounts> counts(module, "SwapSessionCounts");
  counts.def_readonly("matched", &SessionCounts::matched)
      .def_readonly("refused", &SessionCounts::refused)
      .def_readonly("spared", &SessionCounts::spared)
      .def_readonly("postponed", &SessionCounts::postponed)
      .def_readonly("missed_events", &SessionCounts::missed_events)
      .def_readonly("passive", &SessionCounts::passive)
      .def_readonly("passive_bytes", &SessionCounts::passive_bytes)
      .def_readonly("relieved", &SessionCounts::relieved)
      .def_readonly("kept", &SessionCounts::kept)
      .def_readonly("recalled", &SessionCounts::recalled)
      .def_readonly("moved", &SessionCounts::moved)
      .def_readonly("moved_bytes", &SessionCounts::moved_bytes)
      .def_readonly("again", &SessionCounts::again)
      .def_readonly("failed", &SessionCounts::failed)
      .def_readonly("retries", &SessionCounts::retries)
      .def_property_readonly("in_time", [](const SessionCounts& all) { return all.in_time + all.store.early; })
      .def_property_readonly("swapped_out", [](const SessionCounts& all) { return all.store.swapped_out; })
      .def_property_readonly("swapped_in", [](const SessionCounts& all) { return all.store.swapped_in; })
      .def_property_readonly("fetched", [](const SessionCounts& all) { return all.store.fetched; })
      .def_property_readonly("cancelled", [](const SessionCounts& all) { return all.store.cancelled - all.kept; })
      .def_property_readonly("died", [](const SessionCounts& all) { return all.store.died; })
      .def_property_readonly("out_bytes", [](const SessionCounts& all) { return all.store.out_bytes; })
      .def_property_readonly("in_bytes", [](const SessionCounts& all) { return all.store.in_bytes; });
}

py::bytes phases_of(const Iteration& iteration) {
  return {reinterpret_cast<const char*>(iteration.phases.data()), iteration.phases.size()};
}

double duration_us(const IterationClock& clock) {
  clock.end->synchronize();
  return clock.begin->elapsedTime(*clock.end) * 1e3;
}

double without_swapping_us(const IterationClock& clock) {
  TORCH_CHECK(clock.timeline != nullptr, "this iteration was not measured: call measure_swapping() when it begins");
  return clock.timeline->without_swapping_us();
}

void bind_clock(py::module_& module) {
  py::class_<IterationClock>(module, "SwapClock")
      .def_property_readonly("done", [](const IterationClock& clock) { return clock.end->query(); })
      .def_property_readonly("measured", [](const IterationClock& clock) { return clock.timeline != nullptr; })
      .def("duration_us",
           torch::wrap_pybind_function_no_gil([](const IterationClock& clock) { return duration_us(clock); }))
      .def("without_swapping_us", torch::wrap_pybind_function_no_gil(&without_swapping_us));
}

void bind_iteration(py::module_& module) {
  py::class_<Sighting>(module, "SwapSighting")
      .def_readonly("op", &Sighting::op)
      .def_readonly("position", &Sighting::position)
      .def_readonly("storage", &Sighting::storage)
      .def_readonly("key", &Sighting::key)
      .def_readonly("ordinal", &Sighting::ordinal)
      .def_readonly("result", &Sighting::result)
      .def_readonly("pass_bytes", &Sighting::pass_bytes);
  py::class_<Iteration>(module, "SwapIteration")
      .def_readonly("operators", &Iteration::operators)
      .def_property_readonly("phases", &phases_of)
      .def_readonly("sightings", &Iteration::sightings)
      .def_readonly("reads", &Iteration::reads)
      .def_readonly("counts", &Iteration::counts)
      .def_readonly("unmatched", &Iteration::unmatched)
      .def_readonly("peak_bytes", &Iteration::peak_bytes)
      .def_readonly("reserved_peak_bytes", &Iteration::reserved_peak_bytes)
      .def_readonly("host_peak_bytes", &Iteration::host_peak_bytes)
      .def_readonly("backward", &Iteration::backward)
      .def_readonly("forward_bytes", &Iteration::forward_bytes)
      .def_readonly("clock", &Iteration::clock)
      .def("duration_us",
           torch::wrap_pybind_function_no_gil([](const Iteration& iteration) { return duration_us(iteration.clock); }));
}

void bind_sessions(py::module_& module) {
  py::enum_<Matching>(module, "SwapMatching").value("FEATURES", Matching::kFeatures).value("INDEX", Matching::kIndex);
  py::enum_<RecordStream>(module, "SwapRecordStream")
      .value("CUSTOM", RecordStream::kCustom)
      .value("PRINTED", RecordStream::kPrinted)
      .value("TORCH", RecordStream::kTorch);
  py::enum_<Segments>(module, "SwapSegments")
      .value("NONE", Segments::kNone)
      .value("FIXED", Segments::kFixed)
      .value("EXPANDABLE", Segments::kExpandable);
  using torch::wrap_pybind_function_no_gil;
  py::class_<Session>(module, "SwapSession")
      .def(py::init([](c10::Device device, uint64_t least_bytes, Matching matching, bool guard, RecordStream streams) {
             TORCH_CHECK(device.has_index(), "device ", device, " has no index: give one, such as ", device, ":0");
             return std::make_unique<Session>(device, SessionOptions{least_bytes, matching, guard, streams});
           }),
           py::arg("device"), py::arg("least_bytes") = 4096, py::arg("matching") = Matching::kFeatures,
           py::arg("guard") = true, py::arg("record_stream") = RecordStream::kCustom)
      .def("start", wrap_pybind_function_no_gil(&Session::start))
      .def("stop", wrap_pybind_function_no_gil([](Session& session) {
             const LeftOut left = session.stop();
             return std::make_tuple(left.bytes, left.storages);
           }))
      .def_property_readonly("active", &Session::is_active)
      .def("add_resident", wrap_pybind_function_no_gil(&Session::add_resident))
      .def("end_iteration", wrap_pybind_function_no_gil(&Session::end_iteration))
      .def("record_sightings", wrap_pybind_function_no_gil(&Session::record_sightings), py::arg("on"))
      .def("set_policy", wrap_pybind_function_no_gil(&Session::set_policy), py::arg("policy"))
      .def("set_ranks", wrap_pybind_function_no_gil(&Session::set_ranks), py::arg("by_frequency"))
      .def("set_optimizer", &Session::set_optimizer, py::arg("runs"))
      .def("set_budget", &Session::set_budget, py::arg("bytes"))
      .def("set_segments", &Session::set_segments, py::arg("segments"), py::arg("cuts") = true)
      .def(
          "set_more",
          [](Session& session, std::function<void()> more) {
            session.set_more([call = std::make_shared<std::function<void()>>(std::move(more))] {
              const py::gil_scoped_acquire held;
              (*call)();
            });
          },
          py::arg("more"))
      .def("renew_arena", &Session::renew_arena)
      .def_property_readonly("pool_bytes", &Session::pool_bytes)
      .def_property_readonly("small_peak_bytes", &Session::small_peak_bytes)
      .def_property_readonly("only_small", &Session::only_small)
      .def_property_readonly("least_bytes", &Session::least_bytes)
      .def("latest_request", wrap_pybind_function_no_gil(&Session::latest_request))
      .def("least_bytes_for", &Session::least_bytes_for, py::arg("bytes"))
      .def("come_down", wrap_pybind_function_no_gil([](Session& session) {
             const Descent done = session.come_down();
             return std::make_tuple(done.before_bytes, done.after_bytes, done.storages);
           }))
      .def("measure_swapping", wrap_pybind_function_no_gil(&Session::measure_swapping))
      .def("set_watching", wrap_pybind_function_no_gil(&Session::set_watching), py::arg("on"))
      .def_property_readonly("owns_thread", &Session::owns_thread)
      .def_property_readonly("backward_seen", &Session::backward_seen)
      .def_property_readonly("tracked", &Session::tracked)
      .def("raise_error", [](Session& session) { raise_in_python([&] { session.raise_error(); }); });
}

}  // namespace

void bind_session(py::module_& module) {
  bind_policy(module);
  bind_counts(module);
  bind_clock(module);
  bind_iteration(module);
  bind_sessions(module);
}

}  // namespace bayplan::swap

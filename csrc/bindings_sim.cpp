// runtime._sim: the Python face of the simulated accelerator (glue only; runtime/_sim.pyi describes it).
#include <pybind11/stl.h>
#include <torch/extension.h>

#include "sim/autograd.h"
#include "sim/device_memory.h"
#include "sim/kernel_call.h"
#include "sim/machine.h"
#include "sim/pinned.h"
#include "sim/pressure.h"
#include "sim/registration.h"

namespace py = pybind11;
using namespace py::literals;
using sim::Machine;

namespace {

sim::DeviceModel model_of(const py::dict& numbers) {
  sim::DeviceModel model;
  for (const auto& [dtype, rate] : numbers["flops_per_s"].cast<std::map<std::string, double>>()) {
    const auto known = c10::getStringToDtypeMap().find(dtype);
    if (known != c10::getStringToDtypeMap().end()) model.flops_per_s[known->second] = rate;
  }
  model.bytes_per_s = numbers["bytes_per_s"].cast<double>();
  model.launch_ns = numbers["launch_ns"].cast<int64_t>();
  const auto efficiency = numbers["efficiency"].cast<std::map<std::string, double>>();
  for (size_t i = 0; i < model.efficiency.size(); ++i)
    model.efficiency[i] = efficiency.at(sim::name_of(static_cast<sim::OpClass>(i)));
  const auto links = numbers["links"].cast<std::array<std::pair<uint64_t, int64_t>, 2>>();
  for (size_t i = 0; i < links.size(); ++i) model.link[i] = {links[i].first, links[i].second};
  model.half_duplex = numbers["half_duplex"].cast<bool>();
  model.noise = numbers["noise"].cast<double>();
  model.seed = numbers["seed"].cast<uint64_t>();
  model.event_query_ns = numbers["event_query_ns"].cast<int64_t>();
  return model;
}

// Runs without the GIL: who holds the machine's lock may wait for the GIL. Python objects are made of the copy that it
// returns.
template <typename Look>
auto locked(Look look) {
  const py::gil_scoped_release released;
  const std::lock_guard<std::recursive_mutex> held(Machine::get().lock);
  return look();
}

py::tuple access_of(const sim::Access& access) {
  return py::make_tuple(access.op, access.write, access.stream, access.tick, access.begin, access.end, access.label);
}

py::list races() {
  py::list all;
  for (const sim::Race& race : locked([] { return std::vector<sim::Race>(Machine::get().races.found()); }))
    all.append(py::make_tuple(access_of(race.first), access_of(race.second), race.block, race.sentence()));
  return all;
}

py::list trace() {
  py::list all;
  for (const sim::TraceRecord& r : locked([] { return std::vector<sim::TraceRecord>(Machine::get().trace); }))
    all.append(py::make_tuple(r.stream, r.op, r.label, r.kind, r.start, r.end, r.bytes));
  return all;
}

py::dict counters() {
  const auto [c, pinned] =
      locked([] { return std::make_pair(Machine::get().counters, sim::PinnedAllocator::get().bytes()); });
  return py::dict("kernels"_a = c.kernels, "fallbacks"_a = c.fallbacks, "bytes_to_device"_a = c.bytes_to_device,
                  "bytes_to_host"_a = c.bytes_to_host, "event_queries"_a = c.event_queries,
                  "pinned_bytes"_a = pinned.current, "pinned_peak_bytes"_a = pinned.peak);
}

using PlainWrite = std::tuple<std::string, std::vector<std::string>, std::optional<std::string>>;

size_t register_device(const std::vector<PlainWrite>& undeclared) {
  std::vector<sim::UndeclaredWrite> writes;
  for (const auto& [op, arguments, condition] : undeclared) writes.push_back({op, arguments, condition});
  const py::gil_scoped_release released;
  return sim::register_device(std::move(writes));
}

void configure(const py::dict& numbers) {
  const sim::DeviceModel model = model_of(numbers);
  locked([&] { Machine::get().configure(model); });
}

void set_races(const std::string& mode) {
  const std::map<std::string, sim::RaceMode> modes = {
      {"off", sim::RaceMode::kOff}, {"record", sim::RaceMode::kRecord}, {"raise", sim::RaceMode::kRaise}};
  const sim::RaceMode wanted = modes.at(mode);
  locked([&] { Machine::get().races.set_mode(wanted); });
}

void reset() {
  locked([] {
    Machine::get().reset();
    sim::DeviceMemory::get().reset();
    sim::PinnedAllocator::get().reset_accumulated_stats();
    sim::PinnedAllocator::get().reset_peak_stats();
  });
}

void set_pressure_handler(const py::object& handler) {
  void* address = handler.is_none() ? nullptr : PyCapsule_GetPointer(handler.ptr(), "bayplan.pressure");
  if (!address && !handler.is_none()) throw py::error_already_set();
  sim::set_pressure_handler(reinterpret_cast<sim::PressureHandler>(address));
}

// For `runtime._C.set_launch_meter`.
void read_launches(int64_t* numbers) {
  const sim::LaunchReading reading = Machine::get().read_launches();
  numbers[0] = reading.device;
  numbers[1] = reading.launch;
  numbers[2] = reading.end;
  numbers[3] = reading.host_waits ? 1 : 0;
}

}  // namespace

PYBIND11_MODULE(_sim, m) {
  m.attr("torch_version") = BAYPLAN_TORCH_VERSION;
  m.attr("handover_observer") = py::capsule(reinterpret_cast<void*>(&sim::hand_over), "bayplan.handover");
  m.attr("launch_meter") = py::capsule(reinterpret_cast<void*>(&read_launches), "bayplan.launches");
  m.def("register_device", &register_device);
  m.def("configure", &configure);
  m.def("reset", &reset);
  m.def("set_capacity", [](size_t bytes) { locked([&] { sim::DeviceMemory::get().set_capacity(bytes); }); });
  m.def("set_pressure_handler", &set_pressure_handler);
  m.def("capacity", [] { return locked([] { return sim::DeviceMemory::get().capacity(); }); });
  m.def("bytes_in_use", [] { return locked([] { return sim::DeviceMemory::get().in_use(); }); });
  m.def("reuse_intervals", [] { return locked([] { return sim::DeviceMemory::get().reuse_intervals(); }); });
  m.def("host_ns", [] { return locked([] { return Machine::get().host_now(); }); });
  m.def("stream_ns", [](size_t stream) { return locked([&] { return Machine::get().stream_now(stream); }); });
  m.def("set_races", &set_races);
  m.def("races", &races);
  m.def("set_tracing", [](bool on) { locked([&] { Machine::get().tracing = on; }); });
  m.def("trace", &trace);
  m.def("counters", &counters);
  m.def("follow_sequence", &sim::follow_sequence);
  m.def("exchange_label", [](const std::string& label) { return sim::exchange_label(sim::intern(label)); });
}

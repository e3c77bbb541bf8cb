// runtime._sim: the Python face of the simulated accelerator (glue only; runtime/_sim.pyi describes it).
#include <pybind11/stl.h>
#include <torch/extension.h>

#include "sim/autograd.h"
#include "sim/device_memory.h"
#include "sim/kernel_call.h"
#include "sim/machine.h"
#include "sim/pinned.h"
#include "sim/pressure.h"
#include "sim/python_devices.h"
#include "sim/registration.h"
#include "sim/shapes.h"
#include "sim/temporaries.h"

namespace py = pybind11;
using namespace py::literals;
using sim::Machine;

namespace {

using PlainLink = std::tuple<uint64_t, int64_t, size_t>;  // Bytes a second, latency in nanoseconds, lane.

sim::LinkModel link_of(const PlainLink& link) { return {std::get<0>(link), std::get<1>(link), std::get<2>(link)}; }

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
  const auto links = numbers["links"].cast<std::array<PlainLink, 2>>();
  for (size_t i = 0; i < links.size(); ++i) model.link[i] = link_of(links[i]);
  for (const auto& [target, link] : numbers["peers"].cast<std::map<size_t, PlainLink>>())
    model.peers[target] = link_of(link);
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
  const Machine& machine = Machine::get();
  return py::make_tuple(access.op, access.write, machine.id_of(access.stream), access.tick, access.begin, access.end,
                        access.label, machine.device_of(access.stream));
}

// A device by its index, the current one by -1.
size_t index_of(int device) { return sim::device_at(static_cast<c10::DeviceIndex>(device)); }

sim::DeviceMemory& memory(int device) { return sim::DeviceMemory::at(index_of(device)); }

py::list races() {
  py::list all;
  for (const sim::Race& race : locked([] { return Machine::get().races.found(); }))
    all.append(py::make_tuple(access_of(race.first), access_of(race.second), race.block, race.sentence()));
  return all;
}

py::list trace() {
  py::list all;
  for (const sim::TraceRecord& r : locked([] { return Machine::get().sorted_trace(); }))
    all.append(py::make_tuple(r.stream, r.op, r.label, r.kind, r.start, r.end, r.bytes, r.device));
  return all;
}

py::dict counters(int device) {
  const size_t index = index_of(device);
  const auto [c, pinned] =
      locked([&] { return std::make_pair(Machine::get().counters(index), sim::PinnedAllocator::get().bytes()); });
  return py::dict("kernels"_a = c.kernels, "fallbacks"_a = c.fallbacks, "bytes_to_device"_a = c.bytes_to_device,
                  "bytes_to_host"_a = c.bytes_to_host, "event_queries"_a = c.event_queries,
                  "bytes_to_peers"_a = c.bytes_to_peers, "event_records"_a = c.event_records,
                  "stream_waits"_a = c.stream_waits, "pinned_bytes"_a = pinned.current,
                  "pinned_peak_bytes"_a = pinned.peak);
}

using PlainWrite = std::tuple<std::string, std::vector<std::string>, std::optional<std::string>>;

size_t register_device(const std::vector<PlainWrite>& undeclared) {
  std::vector<sim::UndeclaredWrite> writes;
  for (const auto& [op, arguments, condition] : undeclared) writes.push_back({op, arguments, condition});
  const py::gil_scoped_release released;
  return sim::register_device(std::move(writes));
}

void configure(const std::vector<py::dict>& numbers, const std::vector<bool>& joins_devices) {
  std::vector<sim::DeviceModel> models;
  for (const py::dict& one : numbers) models.push_back(model_of(one));
  locked([&] { Machine::get().configure(std::move(models), joins_devices); });
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
    for (size_t device = 0; device < sim::device_count(); ++device) sim::DeviceMemory::at(device).reset();
    sim::PinnedAllocator::get().reset_accumulated_stats();
    sim::PinnedAllocator::get().reset_peak_stats();
    sim::Temporaries::get().reset();
  });
}

void set_pressure_handler(const py::object& handler, int device) {
  void* address = handler.is_none() ? nullptr : PyCapsule_GetPointer(handler.ptr(), "bayplan.pressure");
  if (!address && !handler.is_none()) throw py::error_already_set();
  sim::set_pressure_handler(index_of(device), reinterpret_cast<sim::PressureHandler>(address));
}

void set_relief_callback(const py::object& callback, int device) {
  void* address = callback.is_none() ? nullptr : PyCapsule_GetPointer(callback.ptr(), "bayplan.relief");
  if (!address && !callback.is_none()) throw py::error_already_set();
  sim::set_relief_callback(index_of(device), reinterpret_cast<sim::ReliefCallback>(address));
}

void set_allocator(const std::optional<py::dict>& numbers) {
  std::optional<sim::SegmentRules> rules;
  if (numbers) {
    rules.emplace();
    rules->expandable = (*numbers)["expandable"].cast<bool>();
    rules->stitching = (*numbers)["stitching"].cast<bool>();
    if (!(*numbers)["max_split"].is_none()) rules->max_split = (*numbers)["max_split"].cast<size_t>();
    rules->max_non_split_rounding = (*numbers)["max_non_split_rounding"].cast<size_t>();
    rules->take_ns = (*numbers)["take_ns"].cast<int64_t>();
    rules->return_ns = (*numbers)["return_ns"].cast<int64_t>();
  }
  locked([&] {
    for (size_t device = 0; device < sim::device_count(); ++device) sim::DeviceMemory::at(device).set_rules(rules);
  });
}

py::tuple stitches(int device) {
  const auto done = locked([&] { return memory(device).segments().stitches(); });
  return py::make_tuple(done.count, done.parts, done.bytes);
}

using PlainChunk = std::tuple<size_t, size_t, size_t, const char*>;
struct PlainRun {
  size_t stream;
  bool small, expandable;
  std::vector<PlainChunk> chunks;
};

size_t plain_stream(size_t stream) { return static_cast<size_t>(Machine::get().id_of(stream)); }

std::vector<PlainRun> plain_runs(const sim::Segments& segments) {
  using State = sim::Chunk::State;
  std::vector<PlainRun> all;
  for (const auto& run : segments.runs()) {
    const sim::Segment& segment = *run.front()->segment;
    all.push_back({plain_stream(segment.stream), segment.small, segment.expandable(), {}});
    for (const sim::Chunk* chunk : run) {
      const char* state = chunk->state == State::kFree      ? "inactive"
                          : chunk->state == State::kWaiting ? "active_pending_free"
                                                            : "active_allocated";
      all.back().chunks.emplace_back(segments.address_of(chunk->offset), chunk->bytes, chunk->requested, state);
    }
  }
  return all;
}

// Runs of memory with their chunks, and what the allocator did.
py::tuple memory_snapshot(int device) {
  const auto [runs, events] = locked([&] {
    const sim::Segments& segments = memory(device).segments();
    std::vector<sim::MemoryEvent> did(segments.events().begin(), segments.events().end());
    for (sim::MemoryEvent& event : did) event.stream = plain_stream(event.stream);
    return std::make_pair(plain_runs(segments), std::move(did));
  });
  py::list all, did;
  for (const PlainRun& run : runs)
    all.append(py::make_tuple(run.stream, run.small, run.expandable, py::cast(run.chunks)));
  for (const sim::MemoryEvent& event : events)
    did.append(py::make_tuple(event.action, event.address, event.bytes, event.stream, event.time, event.label));
  return py::make_tuple(all, did);
}

using PlainTerm = std::tuple<std::optional<size_t>, int64_t, int64_t>;
using PlainRule = std::pair<std::vector<PlainTerm>, std::vector<std::pair<std::vector<int64_t>, size_t>>>;

void set_temporaries(const std::map<std::string, PlainRule>& plain) {
  std::map<std::string, sim::TemporaryRule> rules;
  for (const auto& [signature, told] : plain) {
    sim::TemporaryRule& rule = rules[signature];
    for (const auto& [size, factor, divisor] : told.first)
      rule.terms.push_back({size.value_or(sim::kConstantTerm), factor, divisor});
    rule.exact.insert(told.second.begin(), told.second.end());
  }
  sim::Temporaries::get().set_rules(std::move(rules));
}

std::optional<size_t> temporaries_of(const std::string& signature, const std::vector<int64_t>& sizes,
                                     const std::optional<std::tuple<int64_t, int64_t, int64_t, bool>>& product) {
  sim::CallShape call{signature, sizes, std::nullopt};
  if (product) {
    const auto& [rows, inner, columns, turned] = *product;
    call.product = sim::ProductShape{rows, inner, columns, turned};
    call.sizes.insert(call.sizes.end(), {rows, inner, columns});
  }
  return sim::Temporaries::get().told(call);
}

py::list take_measured_temporaries() {
  py::list all;
  for (const sim::MeasuredTemporaries& one : sim::Temporaries::get().take_measured())
    all.append(py::make_tuple(one.call.signature, one.call.sizes, one.bytes));
  return all;
}

// For `runtime._C.set_launch_meter`.
void read_launches(int64_t* numbers) {
  const sim::LaunchReading reading = Machine::get().read_launches();
  numbers[0] = reading.device;
  numbers[1] = reading.launch;
  numbers[2] = reading.end;
  numbers[3] = reading.host_waits;
  numbers[4] = reading.read;
  numbers[5] = reading.sent;
  numbers[6] = reading.beside;
  numbers[7] = reading.stream;
}

// For `runtime._C.set_host_registrar`, as storage/registrar.h lays it out.
struct {
  const char* (*lock)(void*, size_t);
  void (*unlock)(void*);
} host_registrar = {
    [](void* address, size_t bytes) -> const char* {
      sim::PinnedAllocator::get().add(static_cast<char*>(address), bytes);
      return nullptr;
    },
    [](void* address) { sim::PinnedAllocator::get().remove(static_cast<char*>(address)); },
};

}  // namespace

PYBIND11_MODULE(_sim, m) {
  m.attr("torch_version") = BAYPLAN_TORCH_VERSION;
  m.attr("handover_observer") = py::capsule(reinterpret_cast<void*>(&sim::hand_over), "bayplan.handover");
  m.def("read_launches", [] {
    const sim::LaunchReading reading = Machine::get().read_launches();
    return py::make_tuple(reading.device, reading.launch, reading.end, reading.host_waits, reading.read, reading.sent);
  });
  m.attr("launch_meter") = py::capsule(reinterpret_cast<void*>(&read_launches), "bayplan.launches");
  m.attr("host_registrar") = py::capsule(&host_registrar, "bayplan.registrar");
  m.def("register_device", &register_device);
  m.def("configure", &configure);
  m.def("reset", &reset);
  m.def("set_pinned_rounding", [](bool power_of_two) {
    const py::gil_scoped_release released;
    sim::PinnedAllocator::get().set_rounding(power_of_two);
  });
  m.def("set_pressure_handler", &set_pressure_handler, "handler"_a, "device"_a = -1);
  m.def("set_relief_callback", &set_relief_callback, "callback"_a, "device"_a = -1);
  m.def("set_allocator", &set_allocator);
  m.def("caching", [] { return locked([] { return sim::DeviceMemory::at(0).caching(); }); });
  m.def("stitches", &stitches, "device"_a = -1);
  m.def("memory_snapshot", &memory_snapshot, "device"_a = -1);
  m.def("set_races", &set_races);
  m.def("races", &races);
  m.def("trace", &trace);
  m.def("counters", &counters, "device"_a = -1);
  m.def("waits_in_callback", [] { return locked([] { return Machine::get().waits_in_callback(); }); });
  m.def("set_shape_mode", [](bool on, double item_value) { sim::set_shape_mode({on, item_value}); });
  m.def("shapes_only", &sim::shapes_only);
  m.def("set_temporaries", &set_temporaries);
  m.def("temporaries_of", &temporaries_of, "signature"_a, "sizes"_a, "product"_a = py::none());
  m.def("unmeasured_temporaries", [] { return sim::Temporaries::get().unmeasured(); });
  m.def("estimated_temporaries", [] { return sim::Temporaries::get().estimated(); });
  m.def("measure_temporaries", [](bool on) { sim::Temporaries::get().set_measuring(on); });
  m.def("take_measured_temporaries", &take_measured_temporaries);
  m.def("follow_sequence", &sim::follow_sequence);
  sim::define_devices(m);
  m.def("exchange_label", [](const std::string& label) { return sim::exchange_label(sim::intern(label)); });
}

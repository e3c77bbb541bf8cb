#include "sim/python_devices.h"

#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>

#include <optional>

#include "sim/alias.h"
#include "sim/collectives.h"
#include "sim/device_memory.h"
#include "sim/generator.h"
#include "sim/guard.h"
#include "sim/host_work.h"
#include "sim/known.h"
#include "sim/machine.h"
#include "sim/registration.h"
#include "sim/shapes.h"

namespace py = pybind11;
using namespace py::literals;

namespace sim {
namespace {

size_t index_of(int device) { return device_at(static_cast<c10::DeviceIndex>(device)); }

DeviceMemory& memory(int device) { return DeviceMemory::at(index_of(device)); }

// Runs without the GIL: who holds the machine's lock may wait for the GIL.
template <typename Look>
auto locked(Look look) {
  const py::gil_scoped_release released;
  const std::lock_guard<std::recursive_mutex> held(Machine::get().lock);
  return look();
}

void define_memory(py::module_& m) {
  const auto device = "device"_a = -1;
  m.def(
      "set_capacity", [](size_t bytes, int device) { locked([&] { memory(device).set_capacity(bytes); }); }, "bytes"_a,
      device);
  m.def(
      "set_limit",
      [](std::optional<size_t> bytes, int device) { locked([&] { memory(device).segments().set_limit(bytes); }); },
      "bytes"_a, device);
  m.def("limit", [](int device) { return locked([&] { return memory(device).segments().limit(); }); }, device);
  m.def(
      "record_memory", [](size_t most, int device) { locked([&] { memory(device).segments().record(most); }); },
      "most"_a, device);
  m.def("capacity", [](int device) { return locked([&] { return memory(device).capacity(); }); }, device);
  m.def("bytes_in_use", [](int device) { return locked([&] { return memory(device).in_use(); }); }, device);
  m.def("reuse_intervals", [](int device) { return locked([&] { return memory(device).reuse_intervals(); }); }, device);
}

void define_clocks(py::module_& m) {
  m.def("set_devices", &set_devices, py::call_guard<py::gil_scoped_release>());
  m.def("device_count", &device_count);
  m.def("default_generator", [](int device) { return default_generator(index_of(device)); }, "device"_a = -1);
  m.def(
      "host_ns", [](int device) { return locked([&] { return Machine::get().host_now(index_of(device)); }); },
      "device"_a = -1);
  m.def("stream_ns", [](int64_t stream) {
    return locked([&] { return Machine::get().stream_now(Machine::get().number_of(stream)); });
  });
  m.def(
      "default_stream",
      [](int device) {
        return locked([&] { return Machine::get().id_of(Machine::get().default_stream(index_of(device))); });
      },
      "device"_a = -1);
  m.def("synchronize", torch::wrap_pybind_function_no_gil([](int device) { synchronize_device(index_of(device)); }),
        "device"_a = -1);
  m.def("set_tracing", [](bool on) { locked([&] { Machine::get().tracing = on; }); });
}

using PlainMove = std::tuple<size_t, at::Tensor, at::Tensor>;

std::vector<Point> finish(const std::vector<int64_t>& streams, const std::string& op, int64_t start, int64_t end,
                          int64_t bytes, const std::vector<PlainMove>& moves) {
  std::vector<size_t> numbers;
  for (const int64_t stream : streams) numbers.push_back(Machine::get().number_of(stream));
  std::vector<CommMove> given;
  for (const auto& [member, target, source] : moves) {
    TORCH_CHECK(member < streams.size(), "move of member ", member, " of a collective of ", streams.size(),
                ": count members from 0");
    given.push_back({member, target, source});
  }
  return finish_comm(numbers, intern(op), {start, end}, bytes, given);
}

void define_collectives(py::module_& m) {
  m.def("own_stream", [](int device, size_t index) {
    return locked([&] { return Machine::get().id_of(Machine::get().own_stream(index_of(device), index)); });
  });
  m.def("comm_issue",
        torch::wrap_pybind_function_no_gil([](int64_t stream, const std::vector<at::Tensor>& reads,
                                              const std::vector<at::Tensor>& writes, const std::string& op) {
          return issue_comm(Machine::get().number_of(stream), reads, writes, intern(op));
        }));
  m.def("comm_finish", torch::wrap_pybind_function_no_gil(&finish));
  m.def("reserve_links", [](const std::vector<size_t>& lanes, int64_t earliest, int64_t duration) {
    return locked([&] { return Machine::get().calendar.reserve(lanes, earliest, duration); });
  });
  m.def("stream_wait_stream", torch::wrap_pybind_function_no_gil([](int64_t waiter, int64_t waited) {
          const Machine& machine = Machine::get();
          wait_for_stream(machine.number_of(waiter), machine.number_of(waited));
        }));
  py::class_<Point>(m, "CommEnd")
      .def("wait_on_stream", torch::wrap_pybind_function_no_gil([](const Point& end, int64_t stream) {
             Machine::get().wait(Machine::get().number_of(stream), end);
           }))
      .def("wait_on_host", torch::wrap_pybind_function_no_gil([](const Point& end) { Machine::get().host_wait(end); }));
  m.def("set_comm_waiter", [](const py::object& waiter) {
    if (waiter.is_none()) return set_comm_waiter(nullptr);
    // Never destroyed: the machine outlives the interpreter.
    auto* kept = new py::object(waiter);
    set_comm_waiter([kept](size_t device) {
      const py::gil_scoped_acquire held;
      (*kept)(device);
    });
  });
  m.def("host_jump", torch::wrap_pybind_function_no_gil([](int64_t ns, int device) {
          const OnDevice on(index_of(device));
          Machine::get().host_wait({ns, {}, Machine::get().tail(0).generation});
        }));
  m.def("alias", [](const at::Tensor& tensor) -> std::optional<at::Tensor> {
    if (shapes_only()) return known(tensor);
    return cpu_alias(tensor);
  });
}

void define_host(py::module_& m) {
  m.def("host_worker", [](int device) {
    return locked([&] {
      Machine& machine = Machine::get();
      return machine.id_of(machine.stream_of(Doer::kWorker, index_of(device)));
    });
  });
  m.def("host_access",
        torch::wrap_pybind_function_no_gil(
            [](int device, const std::vector<at::Tensor>& reads, const std::vector<at::Tensor>& writes,
               const std::string& name) { access_on_host(index_of(device), reads, writes, intern(name)); }));
  m.def("host_task",
        torch::wrap_pybind_function_no_gil([](int device, int64_t duration_ns, const std::vector<at::Tensor>& reads,
                                              const std::vector<at::Tensor>& writes, const std::string& name) {
          start_host_task(index_of(device), duration_ns, reads, writes, intern(name));
        }));
  m.def("watch_host", torch::wrap_pybind_function_no_gil(&watch_host));
  m.def("exchange_working", [](std::optional<int> device) -> std::optional<int> { return exchange_working(device); });
  m.def("raise_races", torch::wrap_pybind_function_no_gil([](int device) {
          const OnDevice on(index_of(device));
          Machine::get().races.raise_found();
        }));
}

}  // namespace

void define_devices(py::module_& module) {
  define_memory(module);
  define_clocks(module);
  define_collectives(module);
  define_host(module);
}

}  // namespace sim

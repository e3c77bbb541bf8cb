#include "profiler/python.h"

#include "profiler/detailed.h"
#include "profiler/light.h"

#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

namespace py = pybind11;

namespace bayplan {
namespace {

const char* range_name(const OperatorRecord& record) {
  switch (record.range) {
    case Range::kBackward:
      return "backward";
    case Range::kOptimizer:
      return "optimizer";
    case Range::kOutside:
      break;
  }
  return "outside";
}

using Launch = std::tuple<int64_t, int64_t, int64_t, bool>;

// Who measures is of the one device that is not in PyTorch itself.
void set_meter(const py::object& capsule) {
  LaunchMeter meter = nullptr;
  if (!capsule.is_none()) {
    meter = reinterpret_cast<LaunchMeter>(PyCapsule_GetPointer(capsule.ptr(), "bayplan.launches"));
    if (meter == nullptr) throw py::error_already_set();
  }
  set_launch_meter(c10::DeviceType::PrivateUse1, meter);
}

void bind_records(py::module_& module) {
  py::class_<OperatorRecord>(module, "OperatorRecord")
      .def_property_readonly("id", [](const OperatorRecord& record) { return record.op->id; })
      .def_property_readonly("name", [](const OperatorRecord& record) { return record.op->name; })
      .def_property_readonly("communicates", [](const OperatorRecord& record) { return record.op->communicates; })
      .def_property_readonly(
          "has_flops",
          [](const OperatorRecord& record) { return record.op->flop_rule != FlopRule::kNone || record.flops > 0; })
      .def_property_readonly("range", &range_name)
      .def_readonly("accumulation", &OperatorRecord::accumulation)
      .def_readonly("thread", &OperatorRecord::thread)
      .def_readonly("sequence", &OperatorRecord::sequence)
      .def_readonly("flops", &OperatorRecord::flops)
      .def_readonly("bytes", &OperatorRecord::bytes)
      .def_readonly("live_start_bytes", &OperatorRecord::live_start_bytes)
      .def_readonly("peak_bytes", &OperatorRecord::peak_bytes)
      .def_readonly("live_end_bytes", &OperatorRecord::live_end_bytes)
      .def_readonly("allocated_peak_bytes", &OperatorRecord::allocated_peak_bytes)
      .def_readonly("displaced_bytes", &OperatorRecord::displaced_bytes)
      .def_readonly("inputs", &OperatorRecord::inputs)
      .def_readonly("outputs", &OperatorRecord::outputs)
      .def_readonly("written", &OperatorRecord::written)
      .def_property_readonly("launch", [](const OperatorRecord& record) -> std::optional<Launch> {
        if (!record.launch.has_value()) return std::nullopt;
        return Launch(record.launch->device, record.launch->launch, record.launch->end,
                      record.launch->host_waited != 0);
      });
  py::class_<StorageRecord>(module, "StorageRecord")
      .def_readonly("bytes", &StorageRecord::bytes)
      .def_readonly("born", &StorageRecord::born)
      .def_readonly("inner", &StorageRecord::inner)
      .def_readonly("request", &StorageRecord::request)
      .def_readonly("dtype", &StorageRecord::dtype)
      .def_readonly("gradient", &StorageRecord::gradient)
      .def_readonly("leaf", &StorageRecord::leaf);
}

// Plain tuples: there may be hundreds of thousands.
std::vector<std::tuple<uint64_t, int64_t, int64_t, int64_t>> requests_of(const DetailedRecorder& recorder) {
  std::vector<std::tuple<uint64_t, int64_t, int64_t, int64_t>> found;
  found.reserve(recorder.requests().size());
  for (const MemoryReport& one : recorder.requests()) found.emplace_back(one.block, one.bytes, one.op, one.stream);
  return found;
}

void bind_detailed(py::module_& module) {
  py::class_<DetailedRecorder>(module, "DetailedRecorder")
      .def(py::init<c10::Device, bool>(), py::arg("device"), py::arg("timed") = true)
      .def("start", &DetailedRecorder::start, py::arg("resident"))
      .def("stop", &DetailedRecorder::stop)
      .def("operators", &DetailedRecorder::operators)
      .def("storages", [](const DetailedRecorder& recorder) { return recorder.storages().records(); })
      .def("requests", &requests_of)
      .def(
          "storage_number",
          [](const DetailedRecorder& recorder, uintptr_t address) {
            return recorder.storages().find(reinterpret_cast<const void*>(address));
          },
          py::arg("address"))
      .def("living", [](const DetailedRecorder& recorder) { return recorder.storages().living(); })
      .def("elapsed_ns", &DetailedRecorder::elapsed_ns, py::call_guard<py::gil_scoped_release>())
      .def("host_elapsed_ns", &DetailedRecorder::host_elapsed_ns)
      .def_property_readonly("failure", &DetailedRecorder::failure)
      .def_property_readonly("saw_compiled_code", &DetailedRecorder::saw_compiled_code);
}

}  // namespace

void bind_profiler(py::module_& module) {
  module.def("operator_names", &operator_names);
  module.def("start_light", &start_light, py::arg("capacity"), py::arg("inputs") = false);
  module.def("stop_light", &stop_light);
  module.def("set_launch_meter", &set_meter, py::arg("meter"));
  bind_records(module);
  bind_detailed(module);
}

}  // namespace bayplan

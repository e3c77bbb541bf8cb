#include "step/python.h"

#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>

#include <tuple>
#include <utility>
#include <vector>

#include "step/step.h"
#include "storage/python.h"

namespace py = pybind11;

namespace bayplan::swap {
namespace {

void bind_program(py::module_& module) {
  py::class_<Wait>(module, "SwapWait")
      .def(py::init([](uint32_t action, bool frontier) { return Wait{action, frontier}; }), py::arg("action"),
           py::arg("frontier"));
  py::class_<Action>(module, "SwapAction")
      .def(py::init([](ActionKind kind, uint32_t id, std::vector<uint32_t> slots, std::vector<Wait> waits,
                       bool awaited) { return Action{kind, id, std::move(slots), std::move(waits), awaited}; }),
           py::arg("kind"), py::arg("id"), py::arg("slots"), py::arg("waits"), py::arg("awaited"));
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

void bind_steps(py::module_& module) {
  py::class_<Step>(module, "SwapStep")
      .def(py::init<Program, c10::Device, bool>(), py::arg("program"), py::arg("device"), py::arg("traced"))
      .def("begin", torch::wrap_pybind_function_no_gil([](Step& step) { step.begin(); }))
      .def("end", torch::wrap_pybind_function_no_gil([](Step& step) { return step.end(); }))
      .def("failed", &Step::failed)
      .def("raise_error", [](Step& step) { raise_in_python([&] { step.raise_error(); }); })
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

}  // namespace

void bind_step(py::module_& module) {
  bind_program(module);
  bind_outcome(module);
  bind_steps(module);
}

}  // namespace bayplan::swap

// solvers.joint._annealing: the joint planner's local search (glue only; solvers/joint/_annealing.pyi describes it).
//
// It needs pybind11's headers, which torch brings, to be built, and no torch to run.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <array>
#include <memory>

#include "joint/annealing.h"

namespace py = pybind11;
using namespace py::literals;

namespace {

using Lists = std::vector<std::vector<int64_t>>;

// The lists of solvers/joint/given.py, by the same names.
joint::Given given(const py::object& from) {
  const auto list = [](const py::handle& values) { return values.cast<std::vector<int64_t>>(); };
  const auto flags = [](const py::handle& values) {
    std::vector<char> found;
    for (const py::handle value : values) found.push_back(static_cast<char>(value.cast<bool>()));
    return found;
  };
  const py::object graph = from.attr("graph");
  joint::Given made;
  made.time = list(from.attr("time"));
  made.size = list(graph.attr("size"));
  made.workspace = list(from.attr("workspace"));
  made.out_time = list(from.attr("out_time"));
  made.in_time = list(from.attr("in_time"));
  made.launched = from.attr("launched").cast<bool>();
  made.launch = list(from.attr("launch"));
  made.again = list(from.attr("again"));
  made.tail = list(from.attr("tail"));
  made.move = list(from.attr("move"));
  made.sent = list(from.attr("sent"));
  made.read = list(from.attr("read"));
  made.waits = flags(from.attr("waits"));
  made.sync = list(from.attr("sync"));
  made.comm = flags(graph.attr("comm"));
  made.replay = flags(graph.attr("replay"));
  made.hideable = flags(from.attr("hideable"));
  made.inputs = graph.attr("inputs").cast<Lists>();
  made.users = graph.attr("users").cast<Lists>();
  made.replays_from = graph.attr("replays_from").cast<int64_t>();
  made.static_bytes = from.attr("problem").attr("static_bytes").cast<int64_t>();
  made.budget = from.attr("budget").cast<int64_t>();
  made.host = from.attr("host").cast<std::optional<int64_t>>();
  made.shared = from.attr("shared").cast<bool>();
  return made;
}

// The same of `Shadow` of solvers/joint/choice.py.
joint::Shadow owed(const py::object& from) {
  return {from.attr("stage").cast<int64_t>(), from.attr("leaves").cast<std::vector<int64_t>>(),
          from.attr("stays").cast<double>()};
}

py::tuple draft(const joint::Annealing& annealing) {
  py::list issued;
  for (const auto& [at, away] : annealing.draft().issued)
    issued.append(py::make_tuple(away.op, away.touched, away.behind, away.read_at, at));
  return py::make_tuple(annealing.draft().again, issued);
}

}  // namespace

PYBIND11_MODULE(_annealing, module) {
  py::class_<joint::Annealing>(module, "Annealing")
      .def(py::init([](const py::object& from, const Lists& again, const std::vector<std::array<int64_t, 3>>& away,
                       const std::vector<uint32_t>& random, double share, const py::object& shadow) {
             return std::make_unique<joint::Annealing>(given(from), again, away, random, share, owed(shadow));
           }),
           "given"_a, "again"_a, "away"_a, "random"_a, "share"_a, "shadow"_a)
      .def("run", &joint::Annealing::run, "first"_a, "last"_a, "steps"_a, "hot"_a, "cooled"_a,
           py::call_guard<py::gil_scoped_release>())
      .def_property_readonly("now", &joint::Annealing::now)
      .def_property_readonly("best", &joint::Annealing::best)
      .def("draft", &draft)
      .def("random", &joint::Annealing::random);
}

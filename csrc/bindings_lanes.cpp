// solvers.joint._lanes: the joint planner's innermost loop (glue only; solvers/joint/_lanes.pyi describes it).
//
// It needs pybind11's headers, which torch brings, to be built, and no torch to run.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <string_view>

#include "joint/lanes.h"

namespace py = pybind11;
using namespace py::literals;

namespace {

using Room = py::array_t<int64_t, py::array::c_style>;

std::vector<int64_t> copied(const Room& room) { return {room.data(), room.data() + room.size()}; }

std::vector<char> flags(const py::bytes& talking) {
  const std::string_view text = talking;
  return {text.begin(), text.end()};
}

py::list issued(const joint::Lanes& lanes) {
  py::list found;
  for (const auto& [at, away] : lanes.issued()) found.append(py::make_tuple(away.op, away.out_after, away.read_at, at));
  return found;
}

}  // namespace

PYBIND11_MODULE(_lanes, module) {
  py::class_<joint::Lanes>(module, "Lanes")
      .def(py::init<std::vector<int64_t>, std::vector<int64_t>, std::vector<int64_t>, std::vector<int64_t>>(), "size"_a,
           "out_time"_a, "in_time"_a, "start"_a)
      .def(
          "forward",
          [](joint::Lanes& lanes, const py::list& ticks, const py::list& leaves, const py::list& returns,
             const py::dict& away, const py::bytes& talking, const Room& room, int64_t spare, int64_t until) {
            return lanes.forward({ticks, leaves, returns, away, flags(talking)}, copied(room), spare, until);
          },
          "ticks"_a, "leaves"_a, "returns"_a, "away"_a, "talking"_a, "room"_a, "spare"_a, "until"_a)
      .def(
          "all",
          [](joint::Lanes& lanes, const py::list& ticks, const py::list& leaves, const py::list& returns,
             const py::dict& away, const py::bytes& talking, const Room& room,
             int64_t spare) { return lanes.all({ticks, leaves, returns, away, flags(talking)}, copied(room), spare); },
          "ticks"_a, "leaves"_a, "returns"_a, "away"_a, "talking"_a, "room"_a, "spare"_a)
      .def("keep", &joint::Lanes::keep, "early"_a)
      .def("times", &joint::Lanes::times)
      .def("issued", &issued);
}

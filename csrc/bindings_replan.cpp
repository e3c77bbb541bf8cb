// solvers.replan.exact._filling: what stages can hold (glue only; solvers/replan/exact/_filling.pyi describes it).
//
// It needs pybind11's headers, which torch brings, to be built, and no torch to run.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <utility>

#include "replan/filling.h"

namespace py = pybind11;
using namespace py::literals;

namespace {

using Array = py::array_t<int64_t, py::array::c_style | py::array::forcecast>;

replan::Table table(const Array& from) {
  const auto rows = static_cast<size_t>(from.shape(0)), stages = static_cast<size_t>(from.shape(1));
  return {{from.data(), from.data() + from.size()}, rows, stages};
}

std::vector<int64_t> filled(const replan::Filling& filling, const Array& rooms, int64_t layers, int64_t limit) {
  return filling.filled({rooms.data(), rooms.data() + rooms.size()}, layers, limit);
}

void add(replan::Filling& filling, int64_t one, const Array& fixed, const Array& turns, const Array& stays,
         const Array& front, const Array& each) {
  filling.add({one, table(fixed), table(turns), table(stays), table(front), table(each)});
}

}  // namespace

PYBIND11_MODULE(_filling, module) {
  py::class_<replan::Filling>(module, "Filling")
      .def(py::init([](const Array& fixed, const Array& behind, const Array& own) {
             return replan::Filling(table(fixed), table(behind), table(own));
           }),
           "fixed"_a, "behind"_a, "own"_a)
      .def("add", &add, "one"_a, "fixed"_a, "turns"_a, "stays"_a, "front"_a, "each"_a)
      .def("filled", &filled, "rooms"_a, "layers"_a, "limit"_a);
}

// solvers.replan.exact._filling: what stages can hold (glue only; solvers/replan/exact/_filling.pyi describes it).
//
// It needs pybind11's headers, which torch brings, to be built, and no torch to run.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <stdexcept>
#include <string>
#include <utility>

#include "replan/filling.h"

namespace py = pybind11;
using namespace py::literals;

namespace {

using Array = py::array_t<int64_t, py::array::c_style | py::array::forcecast>;

replan::Table table(const Array& from) {
  if (from.ndim() != 2)
    throw std::invalid_argument("a table has rows and stages, not " + std::to_string(from.ndim()) +
                                " dimensions: give it two");
  const auto rows = static_cast<size_t>(from.shape(0)), stages = static_cast<size_t>(from.shape(1));
  return {{from.data(), from.data() + from.size()}, rows, stages};
}

std::vector<int64_t> filled(const replan::Filling& filling, const Array& rooms, int64_t layers, int64_t limit,
                            int64_t front) {
  const auto given = static_cast<size_t>(rooms.size()), stages = filling.stages();
  if (given != stages || given == 0)
    throw std::invalid_argument(std::to_string(given) + " rooms are given for " + std::to_string(stages) +
                                " stages: give one for each, and one at least");
  return filling.filled({rooms.data(), rooms.data() + rooms.size()}, layers, limit, front);
}

void add(replan::Filling& filling, int64_t one, const Array& fixed, const Array& turns, const Array& stays,
         const Array& front, const Array& each) {
  const replan::Table first = table(fixed);
  if (first.stages != filling.stages())
    throw std::invalid_argument("windows have " + std::to_string(first.stages) + " stages, the paths " +
                                std::to_string(filling.stages()) + ": give as many");
  for (const auto* one_of : {&turns, &stays, &front, &each}) {
    const replan::Table given = table(*one_of);
    if (given.rows != first.rows || given.stages != first.stages)
      throw std::invalid_argument("a table of windows has " + std::to_string(given.rows) + " rows of " +
                                  std::to_string(given.stages) + " stages, the first one " +
                                  std::to_string(first.rows) + " of " + std::to_string(first.stages) +
                                  ": give tables alike");
  }
  filling.add({one, table(fixed), table(turns), table(stays), table(front), table(each)});
}

void turn(replan::Filling& filling, int64_t one, const Array& fixed, const Array& waits, const Array& turns) {
  const replan::Table first = table(turns);
  if (first.stages == 0 || first.stages >= filling.stages() || first.rows != 2 * first.stages)
    throw std::invalid_argument("turns have " + std::to_string(first.rows) + " rows of " +
                                std::to_string(first.stages) + " stages: give two for each, and fewer than the paths'");
  for (const auto* one_of : {&fixed, &waits})
    if (const replan::Table given = table(*one_of); given.rows != first.rows || given.stages != first.stages)
      throw std::invalid_argument("tables of turns differ: give tables alike");
  filling.turn({one, table(fixed), table(waits), first});
}

}  // namespace

PYBIND11_MODULE(_filling, module) {
  py::class_<replan::Filling>(module, "Filling")
      .def(py::init([](const Array& fixed, const Array& behind, const Array& own) {
             return replan::Filling(table(fixed), table(behind), table(own));
           }),
           "fixed"_a, "behind"_a, "own"_a)
      .def("add", &add, "one"_a, "fixed"_a, "turns"_a, "stays"_a, "front"_a, "each"_a)
      .def("turn", &turn, "one"_a, "fixed"_a, "waits"_a, "turns"_a)
      .def("filled", &filled, "rooms"_a, "layers"_a, "limit"_a, "front"_a = 0);
}

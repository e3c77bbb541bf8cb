// solvers.replan.exact._filling: what stages can hold, and who takes them (glue only; solvers/replan/exact/_filling.pyi
// describes it).
//
// It needs pybind11's headers, which torch brings, to be built, and no torch to run.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "replan/counts.h"
#include "replan/filling.h"
#include "replan/pipeline.h"
#include "replan/transport.h"

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

std::vector<int64_t> listed(const Array& from) { return {from.data(), from.data() + from.size()}; }

std::pair<int64_t, std::vector<int64_t>> cheapest(const replan::Filling& filling, const Array& rooms,
                                                  const Array& fewest, const Array& most, const Array& prices,
                                                  int64_t limit) {
  const auto stages = static_cast<py::ssize_t>(filling.stages());
  if (prices.ndim() != 2 || rooms.size() != stages || fewest.size() != stages + 1 || most.size() != stages + 1 ||
      prices.shape(0) == 0)
    throw std::invalid_argument("rooms, layers held and prices do not belong to " + std::to_string(stages) +
                                " stages: give one room for each, one more of what is held, and some prices");
  return filling.cheapest(listed(rooms), listed(fewest), listed(most), table(prices), limit);
}

Array arrayed(const std::vector<int64_t>& from) { return Array(static_cast<py::ssize_t>(from.size()), from.data()); }

void require_each(const replan::Filling& filling, const Array& held) {
  if (held.size() != static_cast<py::ssize_t>(filling.stages()) + 1)
    throw std::invalid_argument("of " + std::to_string(held.size()) + " sums of layers " +
                                std::to_string(filling.stages() + 1) +
                                " are needed: give those of the last 0…P stages");
}

Array fewest(const replan::Filling& filling, const Array& held, int64_t limit) {
  require_each(filling, held);
  return arrayed(filling.fewest(listed(held), limit));
}

Array fewer(const replan::Filling& filling, const Array& fewest, int64_t limit, int64_t front) {
  require_each(filling, fewest);
  return arrayed(filling.fewer(listed(fewest), limit, front));
}

std::optional<Array> transported(const py::array_t<double, py::array::c_style | py::array::forcecast>& cost,
                                 const Array& supply, const Array& demand) {
  if (cost.ndim() != 2 || cost.shape(0) != supply.size() || cost.shape(1) != demand.size())
    throw std::invalid_argument("costs do not belong to " + std::to_string(supply.size()) + " supplies and " +
                                std::to_string(demand.size()) + " demands: give a row for each supply");
  replan::Transport transport({cost.data(), cost.data() + cost.size()}, {supply.data(), supply.data() + supply.size()},
                              {demand.data(), demand.data() + demand.size()});
  if (!transport.solve()) return std::nullopt;
  Array flow({supply.size(), demand.size()});
  std::copy(transport.flow().begin(), transport.flow().end(), flow.mutable_data());
  return flow;
}

std::pair<bool, std::optional<std::vector<int64_t>>> counted(const std::vector<int64_t>& worth, int64_t least,
                                                             const std::vector<std::vector<int64_t>>& costs,
                                                             const std::vector<int64_t>& most, int64_t steps) {
  if (worth.empty() || costs.size() != most.size() ||
      std::any_of(costs.begin(), costs.end(), [&](const auto& row) { return row.size() != worth.size(); }) ||
      std::any_of(worth.begin(), worth.end(), [](int64_t one) { return one <= 0; }))
    throw std::invalid_argument("costs and limits do not belong to " + std::to_string(worth.size()) +
                                " worths above 0: give a row of as many costs for each limit");
  replan::Counts counts(worth, costs, most);
  const auto found = counts.search(least, steps);
  if (found == replan::Counts::Found::kSome) return {true, counts.chosen()};
  return {found == replan::Counts::Found::kNone, std::nullopt};
}

}  // namespace

PYBIND11_MODULE(_filling, module) {
  module.def(
      "most_within",
      [](const std::vector<int64_t>& forward, const std::vector<int64_t>& backward, int64_t most, int64_t hop,
         int64_t limit) {
        if (forward.empty() || forward.size() != backward.size())
          throw std::invalid_argument("there are " + std::to_string(forward.size()) + " forwards and " +
                                      std::to_string(backward.size()) + " backwards: give one of each for each stage");
        return replan::most_within(forward, backward, most, hop, limit);
      },
      "forward"_a, "backward"_a, "most"_a, "hop"_a, "limit"_a);
  module.def("counted", &counted, "worth"_a, "least"_a, "costs"_a, "most"_a, "steps"_a);
  module.def("transported", &transported, "cost"_a, "supply"_a, "demand"_a);
  py::class_<replan::Filling>(module, "Filling")
      .def(py::init([](const Array& fixed, const Array& behind, const Array& own) {
             return replan::Filling(table(fixed), table(behind), table(own));
           }),
           "fixed"_a, "behind"_a, "own"_a)
      .def("add", &add, "one"_a, "fixed"_a, "turns"_a, "stays"_a, "front"_a, "each"_a)
      .def("cheapest", &cheapest, "rooms"_a, "fewest"_a, "most"_a, "prices"_a, "limit"_a)
      .def("fewest", &fewest, "held"_a, "limit"_a)
      .def("fewer", &fewer, "fewest"_a, "limit"_a, "front"_a)
      .def("turn", &turn, "one"_a, "fixed"_a, "waits"_a, "turns"_a)
      .def("filled", &filled, "rooms"_a, "layers"_a, "limit"_a, "front"_a = 0);
}

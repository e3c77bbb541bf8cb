// solvers.replan.exact._filling: what stages can hold, and who takes them (glue only; solvers/replan/exact/_filling.pyi
// describes it).
//
// It needs pybind11's headers, which torch brings, to be built, and no torch to run.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>

#include "replan/counts.h"
#include "replan/filling.h"
#include "replan/knapsack.h"
#include "replan/pipeline.h"
#include "replan/responses.h"
#include "replan/stages.h"
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

std::vector<int64_t> listed(const Array& from) { return {from.data(), from.data() + from.size()}; }

std::vector<int64_t> roomy(const replan::Filling& filling, const Array& rooms) {
  const auto given = static_cast<size_t>(rooms.size()), stages = filling.stages();
  if (given != stages || given == 0)
    throw std::invalid_argument(std::to_string(given) + " rooms are given for " + std::to_string(stages) +
                                " stages: give one for each, and one at least");
  return listed(rooms);
}

Array arrayed(const std::vector<int64_t>& from) { return Array(static_cast<py::ssize_t>(from.size()), from.data()); }

std::optional<std::tuple<Array, Array, Array>> held(const replan::Filling& filling, const Array& rooms, int64_t layers,
                                                    int64_t limit) {
  const auto found = filling.held(roomy(filling, rooms), layers, limit);
  if (!found) return std::nullopt;
  return {{arrayed(found->fewest), arrayed(found->most), arrayed(found->rooms)}};
}

std::pair<int64_t, std::vector<int64_t>> cheapest(const replan::Filling& filling, const Array& rooms,
                                                  const Array& prices, int64_t limit) {
  if (prices.ndim() != 2 || prices.shape(0) == 0)
    throw std::invalid_argument("prices need a row for each number of layers behind a stage: give some");
  return filling.cheapest(roomy(filling, rooms), table(prices), limit);
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

template <class T>
using Some = py::array_t<T, py::array::c_style>;

template <class T>
Some<T> respond(const std::optional<Some<T>>& behind, py::ssize_t k, const Some<T>& forward, const Some<T>& backward,
                py::ssize_t microbatches, T hop) {
  const py::ssize_t number = forward.size();
  if (k < 1 || microbatches < 1 || backward.size() != number ||
      (behind && behind->size() != number * microbatches * microbatches))
    throw std::invalid_argument("forwards, backwards and responses behind do not belong to " + std::to_string(number) +
                                " stages and " + std::to_string(microbatches) +
                                " microbatches: give each stage its own");
  Some<T> response({number, microbatches, microbatches});
  replan::respond(behind ? behind->data() : nullptr, static_cast<size_t>(number), static_cast<size_t>(microbatches),
                  static_cast<size_t>(k), forward.data(), backward.data(), hop, response.mutable_data());
  return response;
}

template <class T>
Array undominated(const Array& groups, const Some<T>& rows, const Array& order, const std::optional<Array>& rank) {
  if (rows.ndim() != 2 || rows.shape(1) == 0 || rows.shape(0) != groups.size() || order.size() != groups.size() ||
      (rank && rank->size() != groups.size()))
    throw std::invalid_argument("rows, order and ranks do not belong to " + std::to_string(groups.size()) +
                                " groups: give one of each for each");
  return arrayed(replan::undominated(groups.data(), rows.data(), static_cast<size_t>(rows.shape(1)),
                                     rank ? rank->data() : nullptr, listed(order)));
}

template <class T>
void of_responses(py::module_& module) {
  module.def("respond", &respond<T>, "behind"_a.noconvert(), "k"_a, "forward"_a.noconvert(), "backward"_a.noconvert(),
             "microbatches"_a, "hop"_a);
  module.def("undominated", &undominated<T>, "groups"_a, "rows"_a.noconvert(), "order"_a, "rank"_a = py::none());
}

std::vector<std::pair<int64_t, int64_t>> filled(const std::map<int64_t, int64_t>& worth, int64_t nodes) {
  if (nodes < 0 || (!worth.empty() && worth.begin()->first < 1))
    throw std::invalid_argument("a knapsack has no room for " + std::to_string(nodes) +
                                " nodes, or depths below 1: give none below");
  return replan::filled(worth, nodes);
}

Array stage_prices(const Array& nodes, const Array& sent, const Array& weights, int64_t widest, int64_t load) {
  if (sent.ndim() != 2 || weights.ndim() != 2 || sent.shape(0) != nodes.size() || weights.shape(0) != nodes.size() ||
      sent.shape(1) != weights.shape(1) || sent.shape(1) < 1 || widest < 0)
    throw std::invalid_argument("tables of what is lacked do not belong to " + std::to_string(nodes.size()) +
                                " kinds and stages of at most " + std::to_string(widest) + " layers: give each a row");
  const auto layers = static_cast<size_t>(sent.shape(1)) - 1, wide = static_cast<size_t>(widest);
  return arrayed(replan::stage_prices(listed(nodes), sent.data(), weights.data(), layers, wide, load))
      .reshape({sent.shape(1), static_cast<py::ssize_t>(widest) + 1});
}

std::vector<int64_t> least_prices(const Array& prices, size_t most) {
  const replan::Table given = table(prices);
  if (given.rows == 0 || given.stages == 0)
    throw std::invalid_argument("prices need a row for each number of layers behind a stage: give some");
  return replan::least_prices(given.values.data(), given.rows - 1, given.stages - 1, most);
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
  module.def(
      "pipelines_us",
      [](const Array& forward, const Array& backward, int64_t microbatches, int64_t hop) {
        if (forward.ndim() != 2 || backward.ndim() != 2 || forward.shape(1) == 0 ||
            forward.shape(0) != backward.shape(0) || forward.shape(1) != backward.shape(1))
          throw std::invalid_argument("forwards and backwards differ in shape: give one of each for each stage");
        const auto number = static_cast<size_t>(forward.shape(0)), depth = static_cast<size_t>(forward.shape(1));
        return arrayed(replan::pipelines_us(forward.data(), backward.data(), number, depth, microbatches, hop));
      },
      "forward"_a, "backward"_a, "microbatches"_a, "hop"_a);
  module.def("counted", &counted, "worth"_a, "least"_a, "costs"_a, "most"_a, "steps"_a);
  of_responses<int32_t>(module);
  of_responses<int64_t>(module);
  module.def("transported", &transported, "cost"_a, "supply"_a, "demand"_a);
  module.def(
      "prices",
      [](const std::map<int64_t, int64_t>& worth, int64_t nodes, int64_t most) {
        const replan::Prices found = replan::prices(worth, nodes, most);
        return std::make_tuple(found.node, found.pipeline, found.unit, found.total);
      },
      "worth"_a, "nodes"_a, "most"_a);
  module.def("filled", &filled, "worth"_a, "nodes"_a);
  module.def("stage_prices", &stage_prices, "nodes"_a, "sent"_a, "weights"_a, "widest"_a, "load"_a);
  module.def("least_prices", &least_prices, "prices"_a, "most"_a);
  using Ends = std::pair<int64_t, int64_t>;
  py::class_<replan::Filling>(module, "Filling")
      .def(py::init([](size_t depth, int64_t microbatches, int64_t layers, const Ends& each, const Ends& first,
                       const Ends& last, int64_t hop) {
             return replan::Filling({layers, each.first, each.second, first, last, hop}, depth, microbatches);
           }),
           "depth"_a, "microbatches"_a, "layers"_a, "each"_a, "first"_a, "last"_a, "hop"_a)
      .def("cheapest", &cheapest, "rooms"_a, "prices"_a, "limit"_a)
      .def("held", &held, "rooms"_a, "layers"_a, "limit"_a)
      .def(
          "most_in_all",
          [](const replan::Filling& filling, const Array& rooms, int64_t layers, int64_t limit) {
            return filling.most_in_all(roomy(filling, rooms), layers, limit);
          },
          "rooms"_a, "layers"_a, "limit"_a)
      .def(
          "filled",
          [](const replan::Filling& filling, const Array& rooms, int64_t layers, int64_t limit, int64_t front) {
            return filling.filled(roomy(filling, rooms), layers, limit, front);
          },
          "rooms"_a, "layers"_a, "limit"_a, "front"_a = 0);
}

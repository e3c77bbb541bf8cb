// What nodes and pipelines are worth at most, and what fills nodes best: `_prices`, `_fill_all` of
// solvers/replan/knapsack.py.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace replan {

// In microbatches times `unit`; `total`: all that nodes and pipelines are worth.
struct Prices {
  int64_t node = 0, pipeline = 0, unit = 1, total = 0;
};

// `worth`: microbatches by depth. A side of the concave hull of these points.
Prices prices(const std::map<int64_t, int64_t>& worth, int64_t nodes, int64_t most);

// How many pipelines of each depth, the deepest first, count the most on so many nodes.
std::vector<std::pair<int64_t, int64_t>> filled(const std::map<int64_t, int64_t>& worth, int64_t nodes);

}  // namespace replan

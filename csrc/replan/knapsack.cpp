#include "replan/knapsack.h"

#include <algorithm>

namespace replan {

Prices prices(const std::map<int64_t, int64_t>& worth, int64_t nodes, int64_t most) {
  std::vector<std::pair<int64_t, int64_t>> hull{{0, 0}};
  for (const auto& [depth, value] : worth) {
    if (value <= hull.back().second) continue;
    while (hull.size() > 1) {
      const auto& [last, count] = hull.back();
      const auto& [before, less] = hull[hull.size() - 2];
      if ((count - less) * (depth - before) > (value - less) * (last - before)) break;
      hull.pop_back();
    }
    hull.emplace_back(depth, value);
  }
  for (std::size_t side = 1; side < hull.size(); ++side) {
    const auto& [below, less] = hull[side - 1];
    const auto& [above, more] = hull[side];
    if (above * most < nodes) continue;
    const int64_t unit = above - below, node = more - less, pipeline = less * unit - node * below;
    return {node, pipeline, unit, node * nodes + pipeline * most};
  }
  return {0, hull.back().second, 1, hull.back().second * most};
}

std::vector<std::pair<int64_t, int64_t>> filled(const std::map<int64_t, int64_t>& worth, int64_t nodes) {
  std::vector<std::vector<int64_t>> tables{std::vector<int64_t>(static_cast<std::size_t>(nodes) + 1, 0)};
  std::vector<std::size_t> order;
  for (const auto& [depth, value] : worth) {
    const auto wide = static_cast<std::size_t>(depth);
    if (depth > nodes || value <= tables.back()[wide]) continue;
    order.push_back(wide);
    std::vector<int64_t> table = tables.back();
    for (std::size_t cell = wide; cell < table.size(); ++cell)
      table[cell] = std::max(table[cell], table[cell - wide] + value);
    tables.push_back(std::move(table));
  }
  std::vector<std::pair<int64_t, int64_t>> counts;
  std::size_t left = tables.front().size() - 1;
  for (std::size_t number = order.size(); number > 0; --number) {
    const std::size_t depth = order[number - 1], before = left;
    while (tables[number][left] != tables[number - 1][left]) left -= depth;
    if (left < before) counts.emplace_back(depth, (before - left) / depth);
  }
  return counts;
}

}  // namespace replan

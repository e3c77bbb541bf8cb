#include "replan/knapsack.h"

#include <utility>
#include <vector>

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

}  // namespace replan

#include "replan/stages.h"

#include <algorithm>

#include "replan/filling.h"

namespace replan {

std::vector<int64_t> stage_prices(const std::vector<int64_t>& nodes, const int64_t* sent, const int64_t* weights,
                                  std::size_t layers, std::size_t widest, int64_t load) {
  std::vector<int64_t> prices((layers + 1) * (widest + 1), Filling::kNever);
  for (std::size_t kind = 0; kind < nodes.size(); ++kind, sent += layers + 1, weights += layers + 1)
    for (std::size_t end = 1; end <= layers; ++end) {
      int64_t* row = &prices[(layers - end) * (widest + 1)];
      for (std::size_t own = 1; own <= std::min(widest, end); ++own) {
        if (weights[end] - weights[end - own] > load) break;  // wider stages lack as much
        row[own] = std::min(row[own], nodes[kind] + sent[end] - sent[end - own]);
      }
    }
  return prices;
}

std::vector<int64_t> least_prices(const int64_t* prices, std::size_t layers, std::size_t widest, std::size_t most) {
  std::vector<int64_t> held(layers + 1, Filling::kNever), next, least{Filling::kNever};
  held[0] = 0;
  while (least.size() <= most) {
    next.assign(layers + 1, Filling::kNever);
    for (std::size_t behind = 0; behind < layers; ++behind)
      for (std::size_t own = 1; own <= std::min(widest, layers - behind); ++own)
        next[behind + own] = std::min(next[behind + own], held[behind] + prices[behind * (widest + 1) + own]);
    held.swap(next);
    least.push_back(held[layers]);
  }
  return least;
}

}  // namespace replan

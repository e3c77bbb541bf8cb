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

}  // namespace replan

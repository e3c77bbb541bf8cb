// What stages cost at prices: `Market.stage_prices` of solvers/replan/exact/market.py.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace replan {

// The cheapest kind of nodes for each stage, [layers behind, own up to `widest`]; `Filling::kNever` where none may
// take it. `nodes`: price of a node by kind; `sent` and `weights`: price and load of the layers in front of each that a
// kind lacks, [kind, layer].
std::vector<int64_t> stage_prices(const std::vector<int64_t>& nodes, const int64_t* sent, const int64_t* weights,
                                  std::size_t layers, std::size_t widest, int64_t load);

// The least price of a split over each number of stages up to `most`, whatever its time; such prices, with `layers`.
std::vector<int64_t> least_prices(const int64_t* prices, std::size_t layers, std::size_t widest, std::size_t most);

}  // namespace replan

// The cheapest flow between kinds of many alike: `_Paths` of solvers/replan/transfer/transportation.py, step by step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace replan {

using std::size_t;

// Shortest augmenting paths with prices; costs are integers below 2^53, or infinite where forbidden, by row.
class Transport {
 public:
  Transport(std::vector<double> cost, std::vector<int64_t> supply, std::vector<int64_t> demand);

  // Whether all supplies flow; then `flow` says where.
  bool solve();
  const std::vector<int64_t>& flow() const { return flow_; }

 private:
  struct Search;
  void start();
  bool augment();
  void relax(const std::vector<size_t>& rows, double base, Search& search) const;
  void push(size_t end, const Search& search);
  size_t at(size_t row, size_t column) const { return row * demand_.size() + column; }

  const std::vector<double> cost_;
  std::vector<int64_t> supply_, demand_, flow_;
  std::vector<double> row_price_, column_price_;
};

}  // namespace replan

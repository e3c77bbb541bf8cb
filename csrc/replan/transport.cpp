#include "replan/transport.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace replan {

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr size_t kNone = static_cast<size_t>(-1);

}  // namespace

// One shortest path: how far rows and columns are, and from where they are reached.
struct Transport::Search {
  std::vector<double> row_distance, distance;
  std::vector<size_t> row_from, column_from;
  std::vector<char> done;
};

Transport::Transport(std::vector<double> cost, std::vector<int64_t> supply, std::vector<int64_t> demand)
    : cost_(std::move(cost)),
      supply_(std::move(supply)),
      demand_(std::move(demand)),
      flow_(cost_.size(), 0),
      row_price_(supply_.size(), 0.0),
      column_price_(demand_.size(), kNever) {
  for (size_t row = 0; row < supply_.size(); ++row)
    for (size_t column = 0; column < demand_.size(); ++column)
      column_price_[column] = std::min(column_price_[column], cost_[at(row, column)]);
}

bool Transport::solve() {
  if (std::any_of(column_price_.begin(), column_price_.end(), [](double price) { return price == kNever; }))
    return false;
  start();
  while (std::any_of(supply_.begin(), supply_.end(), [](int64_t left) { return left != 0; }))
    if (!augment()) return false;
  return true;
}

// Everything that can go at reduced cost 0 without moving what went before.
void Transport::start() {
  for (size_t row = 0; row < supply_.size(); ++row)
    for (size_t column = 0; column < demand_.size(); ++column) {
      if (cost_[at(row, column)] != column_price_[column]) continue;
      const int64_t amount = std::min(supply_[row], demand_[column]);
      flow_[at(row, column)] += amount;
      supply_[row] -= amount;
      demand_[column] -= amount;
    }
}

// One shortest path from any supply left to any demand left; false where none is reached.
bool Transport::augment() {
  const size_t rows = supply_.size(), columns = demand_.size();
  Search search{std::vector<double>(rows, kNever), std::vector<double>(columns, kNever),
                std::vector<size_t>(rows, kNone), std::vector<size_t>(columns, 0), std::vector<char>(columns, 0)};
  std::vector<size_t> reached;
  for (size_t row = 0; row < rows; ++row)
    if (supply_[row] != 0) {
      search.row_distance[row] = 0;
      reached.push_back(row);
    }
  relax(reached, 0.0, search);
  size_t end = kNone;
  double least = kNever;
  while (true) {
    size_t nearest = kNone;
    least = kNever;
    for (size_t column = 0; column < columns; ++column)
      if (!search.done[column] && search.distance[column] < least) {
        least = search.distance[column];
        nearest = column;
      }
    if (nearest == kNone) return false;
    for (size_t column = nearest; column < columns && end == kNone; ++column)
      if (!search.done[column] && search.distance[column] == least && demand_[column] > 0) end = column;
    if (end != kNone) break;
    search.done[nearest] = 1;
    reached.clear();
    for (size_t row = 0; row < rows; ++row)
      if (flow_[at(row, nearest)] > 0 && search.row_distance[row] == kNever) {
        search.row_distance[row] = least;
        search.row_from[row] = nearest;
        reached.push_back(row);
      }
    relax(reached, least, search);
  }
  for (size_t row = 0; row < rows; ++row)
    if (search.row_distance[row] != kNever) row_price_[row] += least - search.row_distance[row];
  for (size_t column = 0; column < columns; ++column)
    if (search.done[column]) column_price_[column] -= least - search.distance[column];
  push(end, search);
  return true;
}

void Transport::relax(const std::vector<size_t>& rows, double base, Search& search) const {
  for (size_t column = 0; column < demand_.size(); ++column) {
    if (search.done[column]) continue;
    for (const size_t row : rows) {
      const double reach = base + cost_[at(row, column)] - row_price_[row] - column_price_[column];
      if (reach < search.distance[column]) {
        search.distance[column] = reach;
        search.column_from[column] = row;
      }
    }
  }
}

// Moves along the path to `end` what its supply, its demand and the flows that it turns back allow.
void Transport::push(size_t end, const Search& search) {
  std::vector<std::pair<size_t, size_t>> steps;
  int64_t amount = demand_[end];
  size_t column = end, row = search.column_from[end];
  while (true) {
    steps.emplace_back(row, column);
    if (search.row_from[row] == kNone) break;
    column = search.row_from[row];
    amount = std::min(amount, flow_[at(row, column)]);
    row = search.column_from[column];
  }
  amount = std::min(amount, supply_[row]);
  for (const auto& [from, to] : steps) {
    flow_[at(from, to)] += amount;
    if (search.row_from[from] != kNone) flow_[at(from, search.row_from[from])] -= amount;
  }
  supply_[row] -= amount;
  demand_[end] -= amount;
}

}  // namespace replan

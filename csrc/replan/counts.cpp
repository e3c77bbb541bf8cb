#include "replan/counts.h"

#include <algorithm>
#include <utility>

namespace replan {

namespace {

int64_t rounded_down(int64_t value, int64_t by) { return value / by - (value % by < 0 ? 1 : 0); }

}  // namespace

Counts::Counts(std::vector<int64_t> worth, std::vector<std::vector<int64_t>> costs, std::vector<int64_t> most)
    : worth_(std::move(worth)),
      costs_(std::move(costs)),
      left_(std::move(most)),
      chosen_(worth_.size(), 0),
      behind_(worth_.size(), std::vector<Best>(costs_.size(), Best{0, 1})) {
  for (size_t number = worth_.size() - 1; number-- > 0;)
    for (size_t row = 0; row < costs_.size(); ++row) {
      const Best best = behind_[number + 1][row], next{worth_[number + 1], costs_[row][number + 1]};
      behind_[number][row] = next.worth * best.cost > best.worth * next.cost ? next : best;
    }
}

Counts::Found Counts::search(int64_t least, int64_t steps) {
  steps_ = steps;
  return from(0, least);
}

// What a number can be lies between two limits: what each row leaves for it, with the best of those behind it.
Counts::Found Counts::from(size_t number, int64_t need) {
  if (need <= 0) return Found::kSome;
  if (number == worth_.size()) return Found::kNone;
  const int64_t worth = worth_[number];
  int64_t fewest = 0, most = (need + worth - 1) / worth;
  for (size_t row = 0; row < costs_.size(); ++row) {
    const int64_t cost = costs_[row][number], left = left_[row];
    if (cost > 0) most = std::min(most, left / cost);
    const Best best = behind_[number][row];
    if (best.cost == 0) continue;
    const int64_t each = best.worth * cost - best.cost * worth, spare = best.worth * left - best.cost * need;
    if (each > 0)
      most = std::min(most, rounded_down(spare, each));
    else if (each < 0)
      fewest = std::max(fewest, -rounded_down(spare, -each));
    else if (spare < 0)
      return Found::kNone;
  }
  for (int64_t count = fewest; count <= most; ++count) {
    if (--steps_ < 0) return Found::kUnknown;
    for (size_t row = 0; row < costs_.size(); ++row) left_[row] -= costs_[row][number] * count;
    chosen_[number] = count;
    const Found found = from(number + 1, need - worth * count);
    for (size_t row = 0; row < costs_.size(); ++row) left_[row] += costs_[row][number] * count;
    if (found != Found::kNone) return found;
    chosen_[number] = 0;
  }
  return Found::kNone;
}

}  // namespace replan

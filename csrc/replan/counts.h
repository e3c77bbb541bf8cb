// How many pipelines of each kind: `counts` of solvers/replan/exact/counts.py, step by step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace replan {

using std::size_t;

// Whole numbers y ≥ 0 with worth · y ≥ least and cost · y ≤ most in each row, looked for depth first.
class Counts {
 public:
  enum class Found { kSome, kNone, kUnknown };

  Counts(std::vector<int64_t> worth, std::vector<std::vector<int64_t>> costs, std::vector<int64_t> most);

  // `steps`: so many numbers are fixed at most. Then `chosen` says them where some were found.
  Found search(int64_t least, int64_t steps);
  const std::vector<int64_t>& chosen() const { return chosen_; }

 private:
  // The best of the numbers behind one, in one row: its worth and its cost; no cost: no limit.
  struct Best {
    int64_t worth, cost;
  };
  Found from(size_t number, int64_t need);

  const std::vector<int64_t> worth_;
  const std::vector<std::vector<int64_t>> costs_;
  std::vector<int64_t> left_, chosen_;
  std::vector<std::vector<Best>> behind_;
  int64_t steps_ = 0;
};

}  // namespace replan

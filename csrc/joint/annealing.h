// Simulated annealing over decisions: `Annealing` of solvers/joint/anneal.py, step for step.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "joint/given.h"
#include "joint/lanes.h"
#include "joint/moves.h"
#include "joint/patterns.h"
#include "joint/random.h"
#include "joint/state.h"

namespace joint {

// A choice with its swap-ins: by stage what runs again, and what is away with the stage that it is issued at.
struct Draft {
  std::vector<std::vector<int64_t>> again;
  std::vector<std::pair<int64_t, Away>> issued;
};

class Annealing {
 public:
  // From the choice `again`, by stage, and `away`, as `State` has it, in ascending order; `share` of the steps change
  // many decisions.
  Annealing(Given given, const std::vector<std::vector<int64_t>>& again,
            const std::vector<std::array<int64_t, 3>>& away, const std::vector<uint32_t>& random, double share,
            Shadow shadow);
  Annealing(const Annealing&) = delete;
  Annealing& operator=(const Annealing&) = delete;

  // Steps `first` to `last` - 1 of `steps`; the first of all may lose `hot` ticks one time in e, the last
  // `cooled` times less.
  void run(int64_t first, int64_t last, int64_t steps, double hot, double cooled);

  int64_t now() const { return now_; }
  int64_t best() const { return best_; }
  const Draft& draft() const { return draft_; }
  std::vector<uint32_t> random() const { return source_.state(); }

 private:
  void step(int64_t most);
  void note(int64_t took);

  const Given given_;
  Random source_;
  State state_;
  Lanes lanes_;
  Moves moves_;
  Patterns patterns_;
  const double share_;
  int64_t now_, best_;
  Draft draft_;
};

}  // namespace joint

#include "joint/annealing.h"

#include <cmath>
#include <utility>

namespace joint {

Annealing::Annealing(Given given, const std::vector<std::vector<int64_t>>& again,
                     const std::vector<std::array<int64_t, 3>>& away, const std::vector<uint32_t>& random, double share,
                     Shadow shadow)
    : given_(std::move(given)),
      state_(given_, again, away, std::move(shadow)),
      lanes_(state_),
      moves_(state_, source_),
      patterns_(moves_, state_, source_),
      share_(share),
      now_(lanes_.took()) {
  source_.set(random);
  if (now_ < kFault) {  // Once more, now that the stages' times are known.
    lanes_.kept();
    now_ = lanes_.took();
    lanes_.kept();
  }
  note(now_);
  if (now_ < kFault) now_ += state_.owed();
}

void Annealing::run(int64_t first, int64_t last, int64_t steps, double hot, double cooled) {
  for (int64_t number = first; number < last; ++number) {
    const double warmth = hot * std::pow(cooled, static_cast<double>(-number) / static_cast<double>(steps));
    step(now_ - static_cast<int64_t>(warmth * std::log(1.0 - source_.random())));
  }
}

// One change, taken back where the step's time and what the choice owes are then more than `most`.
void Annealing::step(int64_t most) {
  state_.begin();
  const bool is_many = share_ != 0 && source_.random() < share_;
  const bool is_changed = is_many ? patterns_.any() : moves_.any();
  const int64_t took = is_changed ? lanes_.took(most - state_.owed()) : kFault;
  if (took == kFault) {
    state_.undo();
    return;
  }
  now_ = took + state_.owed();
  lanes_.kept();
  moves_.refresh();
  if (took < best_) note(took);
}

void Annealing::note(int64_t took) {
  best_ = took;
  draft_ = {state_.again, lanes_.issued()};
}

}  // namespace joint

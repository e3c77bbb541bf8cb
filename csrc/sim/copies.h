// Copies that have been issued but not yet moved their bytes.
#pragma once
#include <deque>
#include <functional>
#include <vector>

#include "sim/clock.h"

namespace sim {

// An asynchronous copy moves its bytes only when something that must happen after it is about to run: as late as the
// program's own waits allow. A program that forgets a wait then reads what was there before, as it might on a real
// device.
class LateCopies {
 public:
  void add(size_t stream, uint64_t tick, std::function<void()> move);  // In any order of ticks.
  // Moves every copy that happens before a point with this past, in the order of their issue (which respects
  // happens-before).
  void settle(const VectorClock& past);

 private:
  struct Pending {
    uint64_t tick;
    uint64_t order;
    std::function<void()> move;
  };
  std::vector<std::deque<Pending>> streams_;  // By stream, in order.
  uint64_t next_order_ = 0;
  size_t waiting_ = 0;
};

}  // namespace sim

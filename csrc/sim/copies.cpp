#include "sim/copies.h"

#include <algorithm>
#include <utility>

namespace sim {

void LateCopies::add(size_t stream, uint64_t tick, std::function<void()> move) {
  if (stream >= streams_.size()) streams_.resize(stream + 1);
  auto& queue = streams_[stream];
  auto later = queue.end();
  while (later != queue.begin() && std::prev(later)->tick > tick) --later;
  queue.insert(later, {tick, next_order_++, std::move(move)});
  ++waiting_;
}

void LateCopies::settle(const VectorClock& past) {
  if (waiting_ == 0) return;
  std::vector<Pending> due;
  for (size_t stream = 0; stream < streams_.size(); ++stream) {
    auto& queue = streams_[stream];
    for (; !queue.empty() && queue.front().tick <= past.of(stream); queue.pop_front())
      due.push_back(std::move(queue.front()));
  }
  waiting_ -= due.size();
  std::sort(due.begin(), due.end(), [](const Pending& a, const Pending& b) { return a.order < b.order; });
  for (Pending& copy : due) copy.move();
}

}  // namespace sim

#include "replan/pipeline.h"

#include <algorithm>
#include <cstddef>

namespace replan {

int64_t pipeline_us(const std::vector<int64_t>& forward, const std::vector<int64_t>& backward, int64_t microbatches,
                    int64_t hop) {
  const size_t depth = forward.size(), count = static_cast<size_t>(microbatches);
  std::vector<size_t> sent(depth, 0), back(depth, 0);  // how many forwards and backwards each stage has done
  std::vector<int64_t> ends(depth, 0);
  std::vector<std::vector<int64_t>> arrives(depth, std::vector<int64_t>(count, 0));  // the last pass behind or before
  while (back[0] < count)
    for (size_t stage = 0; stage < depth; ++stage)
      while (back[stage] < count) {
        const size_t ahead = std::min(count, back[stage] + depth - stage);  // forwards before the next backward
        const bool goes = sent[stage] < ahead;
        const size_t batch = goes ? sent[stage] : back[stage];
        if (goes ? stage > 0 && sent[stage - 1] <= batch : stage + 1 < depth && back[stage + 1] <= batch) break;
        int64_t& end = ends[stage];
        end = std::max(end, arrives[stage][batch]) + (goes ? forward[stage] : backward[stage]);
        if (goes) {
          if (stage + 1 < depth) arrives[stage + 1][batch] = end + hop;
          ++sent[stage];
        } else {
          if (stage > 0) arrives[stage - 1][batch] = end + hop;
          ++back[stage];
        }
      }
  return ends[0];
}

int64_t most_within(const std::vector<int64_t>& forward, const std::vector<int64_t>& backward, int64_t most,
                    int64_t hop, int64_t limit) {
  int64_t low = 0, high = most;
  while (low < high) {
    const int64_t middle = high - (high - low) / 2;
    if (pipeline_us(forward, backward, middle, hop) <= limit)
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

}  // namespace replan

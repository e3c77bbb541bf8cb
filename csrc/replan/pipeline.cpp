#include "replan/pipeline.h"

#include <algorithm>
#include <array>
#include <numeric>

namespace replan {

namespace {

constexpr size_t kLanes = 8;  // So many pipelines go through every pass together.

// No pipeline of these stages takes less: paths A to D (solvers/replan/README.md, Exact, 1), D with fewest and most
// sweeps.
int64_t least_us(const std::vector<int64_t>& forward, const std::vector<int64_t>& backward, int64_t microbatches,
                 int64_t hop) {
  const auto depth = static_cast<int64_t>(forward.size()), others = microbatches - 1;
  const int64_t passes = std::accumulate(forward.begin(), forward.end(), int64_t{0}) +
                         std::accumulate(backward.begin(), backward.end(), int64_t{0});
  const int64_t alone = passes + 2 * (depth - 1) * hop;
  int64_t least = 0, behind = 0;
  for (int64_t k = 1; k <= depth; ++k) {
    const auto stage = static_cast<size_t>(depth - k);
    const int64_t f = forward[stage], b = backward[stage], steady = std::max(microbatches - k, int64_t{0});
    behind += f + b;
    least = std::max(least, alone + others * std::max(f, b) + steady * std::min(f, b));
    least = std::max(least, passes - behind + 2 * (depth - k) * hop + microbatches * (f + b));
    for (const int64_t sweeps : {int64_t{1}, others / k})
      if (sweeps > 0 && sweeps * k <= others)
        least = std::max(least, alone + sweeps * (behind + 2 * (k - 1) * hop) + (others - sweeps * k) * (f + b));
  }
  return least;
}

}  // namespace

int64_t pipeline_us(const std::vector<int64_t>& forward, const std::vector<int64_t>& backward, int64_t microbatches,
                    int64_t hop) {
  const size_t depth = forward.size(), count = static_cast<size_t>(microbatches);
  std::vector<size_t> sent(depth, 0), back(depth, 0);  // how many forwards and backwards each stage has done
  std::vector<int64_t> ends(depth, 0);
  std::vector<int64_t> arrives(depth * count, 0);  // the last pass behind or before
  while (back[0] < count)
    for (size_t stage = 0; stage < depth; ++stage)
      while (back[stage] < count) {
        const size_t ahead = std::min(count, back[stage] + depth - stage);  // forwards before the next backward
        const bool goes = sent[stage] < ahead;
        const size_t batch = goes ? sent[stage] : back[stage];
        if (goes ? stage > 0 && sent[stage - 1] <= batch : stage + 1 < depth && back[stage + 1] <= batch) break;
        int64_t& end = ends[stage];
        end = std::max(end, arrives[stage * count + batch]) + (goes ? forward[stage] : backward[stage]);
        if (goes) {
          if (stage + 1 < depth) arrives[(stage + 1) * count + batch] = end + hop;
          ++sent[stage];
        } else {
          if (stage > 0) arrives[(stage - 1) * count + batch] = end + hop;
          ++back[stage];
        }
      }
  return ends[0];
}

std::vector<int64_t> pipelines_us(const int64_t* forward, const int64_t* backward, size_t number, size_t depth,
                                  int64_t microbatches, int64_t hop) {
  struct Pass {
    size_t stage, batch;
    bool forward;
  };
  std::vector<Pass> order;  // in which no pass comes before one that it waits for: the same for all
  const size_t count = static_cast<size_t>(microbatches);
  std::vector<size_t> sent(depth, 0), back(depth, 0);
  while (back[0] < count)
    for (size_t stage = 0; stage < depth; ++stage)
      while (back[stage] < count) {
        const bool goes = sent[stage] < std::min(count, back[stage] + depth - stage);
        const size_t batch = goes ? sent[stage] : back[stage];
        if (goes ? stage > 0 && sent[stage - 1] <= batch : stage + 1 < depth && back[stage + 1] <= batch) break;
        order.push_back({stage, batch, goes});
        ++(goes ? sent : back)[stage];
      }
  using Lanes = std::array<int64_t, kLanes>;
  std::vector<Lanes> times(2 * depth), ends(depth), arrives(depth * count);
  std::vector<int64_t> found(number);
  for (size_t start = 0; start < number; start += kLanes) {
    const size_t some = std::min(kLanes, number - start);
    for (size_t stage = 0; stage < depth; ++stage)
      for (size_t lane = 0; lane < some; ++lane) {
        times[stage][lane] = forward[(start + lane) * depth + stage];
        times[depth + stage][lane] = backward[(start + lane) * depth + stage];
      }
    std::fill(ends.begin(), ends.end(), Lanes{});
    std::fill_n(arrives.begin(), count, Lanes{});
    for (const Pass& pass : order) {
      Lanes& end = ends[pass.stage];
      const Lanes& arrival = arrives[pass.stage * count + pass.batch];
      const Lanes& takes = times[pass.stage + (pass.forward ? 0 : depth)];
      for (size_t lane = 0; lane < kLanes; ++lane) end[lane] = std::max(end[lane], arrival[lane]) + takes[lane];
      if (pass.forward ? pass.stage + 1 == depth : pass.stage == 0) continue;
      Lanes& next = arrives[(pass.forward ? pass.stage + 1 : pass.stage - 1) * count + pass.batch];
      for (size_t lane = 0; lane < kLanes; ++lane) next[lane] = end[lane] + hop;
    }
    std::copy_n(ends[0].begin(), some, found.begin() + static_cast<std::ptrdiff_t>(start));
  }
  return found;
}

int64_t most_within(const std::vector<int64_t>& forward, const std::vector<int64_t>& backward, int64_t most,
                    int64_t hop, int64_t limit) {
  const auto ends = [&](int64_t count) {
    return least_us(forward, backward, count, hop) <= limit && pipeline_us(forward, backward, count, hop) <= limit;
  };
  int64_t low = most, over = most + 1, step = 1;  // callers' bounds are close, so steps down are short at first
  while (low > 0 && !ends(low)) {
    over = low;
    low = std::max<int64_t>(0, low - step);
    step *= 2;
  }
  while (over - low > 1) {
    const int64_t middle = low + (over - low) / 2;
    (ends(middle) ? low : over) = middle;
  }
  return low;
}

}  // namespace replan

// F5, the time of one pipeline: `pipeline_us` of solvers/replan/estimate, pass by pass.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace replan {

using std::size_t;

// The time of so many microbatches, 1F1B, over stages whose passes take so long, a hop between two of them.
int64_t pipeline_us(const std::vector<int64_t>& forward, const std::vector<int64_t>& backward, int64_t microbatches,
                    int64_t hop);

// The same of `number` pipelines of equal depth, by [pipeline, stage].
std::vector<int64_t> pipelines_us(const int64_t* forward, const int64_t* backward, size_t number, size_t depth,
                                  int64_t microbatches, int64_t hop);

// The most microbatches, up to `most`, that end within the limit: the time never falls with them.
int64_t most_within(const std::vector<int64_t>& forward, const std::vector<int64_t>& backward, int64_t most,
                    int64_t hop, int64_t limit);

}  // namespace replan

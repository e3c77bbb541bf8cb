// What the last stages do to those before: `respond` and `undominated` of solvers/replan/exact/responses.py.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace replan {

using std::size_t;

// Responses [number, backward, forward] of stage k, from those of the stages behind it (null: the last stage).
// `forward` and `backward` [number]: what its passes take.
template <class T>
void respond(const T* behind, size_t number, size_t microbatches, size_t k, const T* forward, const T* backward, T hop,
             T* response);

// Which rows [number, width] no other of the same group is as small as everywhere, in `rank` too (null: none), of equal
// ones the first; rising. `order`: all of them, group by group, in each the sums of what is above 0 rising.
template <class T>
std::vector<int64_t> undominated(const int64_t* groups, const T* rows, size_t width, const int64_t* rank,
                                 const std::vector<int64_t>& order);

}  // namespace replan

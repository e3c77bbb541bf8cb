// The online profiler's light mode: one integer for each counted operator of the thread that started it, and of the
// autograd threads that work for it. Cheap enough to stay on; it tells whether two steps run the same operators.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace bayplan {

// Starts recording on this thread, keeping at most `capacity` operators. One light recording at a time. With `inputs`,
// which costs time, jagged tensors are told as all other observers do.
void start_light(size_t capacity, bool inputs);

// Ends it and returns the operator ids in order. Throws if more than `capacity` operators ran.
std::vector<uint32_t> stop_light();

}  // namespace bayplan

// Which threads a step runs on: the one that began it, and the autograd threads that work for it. PyTorch carries the
// mark from the one to the others, as it carries a profiler's state; a data loader's threads do not bear it.
#pragma once

#include <cstdint>

namespace bayplan::swap {

// Marks the calling thread, and with it what PyTorch starts on its behalf; `step` is not 0.
void join_step(uint64_t step);
// Takes the mark off the calling thread, which is the one that joined.
void leave_step(uint64_t step);
// The step that the calling thread works for, or 0.
uint64_t joined_step();

}  // namespace bayplan::swap

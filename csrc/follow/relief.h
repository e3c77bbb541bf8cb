// Requests for memory that do not fit: the allocator asks, and whoever follows the program answers. A session does so
// by SmartSwap's Algorithm 3 (session/passive.h).
#pragma once

#include <cstddef>

namespace bayplan::swap {

// The interface to an allocator that asks again and again: `missing` of the `bytes` of a request are not
// free. True: something was freed, look again. Takes no GIL; called without the allocator's own locks.
using PressureHandler = bool (*)(size_t bytes, size_t missing, unsigned attempt);
bool answer_pressure(size_t bytes, size_t missing, unsigned attempt);

// Has CUDA's caching allocator ask, through its free-memory callbacks; false where this process has no CUDA.
bool listen_to_cuda();

}  // namespace bayplan::swap

// Requests for memory that do not fit: the allocator asks, with its device as the thread's current one, and whoever
// follows that device answers, a session by SmartSwap's Algorithm 3 (session/passive.h).
#pragma once

#include <c10/core/Device.h>

#include <cstddef>
#include <cstdint>
#include <mutex>

#include "storage/waits.h"

namespace bayplan::swap {

// The interface to an allocator that asks again and again: `missing` of the `bytes` of a request are not
// free. True: something was freed, look again. Takes no GIL; called without the allocator's own locks.
using PressureHandler = bool (*)(size_t bytes, size_t missing, unsigned attempt);
bool answer_pressure(size_t bytes, size_t missing, unsigned attempt);

// The interface to an allocator that asks once, before it takes new memory, and does not say how much it lacks: true if
// something was freed. May be called with the allocator's locks.
using ReliefCallback = bool (*)();

// Answers for an allocator that holds its own lock, asks once and does not say what it lacks; whether memory was freed.
// Waits for nothing (storage/waits.h): another thread may wait for that lock, and everybody who asks for memory does.
// So only what needs no wait leaves; what was refused is made up for before the next operator (`catch_up`).
bool answer_under_lock();
// Whether something of a device was refused or put off, or used up what was page-locked ahead: cheap.
bool behind(c10::Device device);
// Makes up for it, or looks whether there is anything to make up for: called without any lock, outside of operators.
void catch_up(c10::Device device, bool look);

// Takes the store while no other thread is inside an operator: none enters one then. After some seconds in any case.
// Whoever waits for other threads holds nothing that they may wait for.
std::unique_lock<StoreMutex> lock_alone(c10::Device device);

struct ReliefCounts {
  uint64_t under_lock = 0;  // requests answered at once
  uint64_t refused = 0;     // of these, with memory still short,
  uint64_t unlocked = 0;    // and of those, where a storage stayed for lack of page-locked memory
  uint64_t waits = 0;       // for other threads to leave their operators
  uint64_t caught_up = 0;   // before an operator
};
ReliefCounts relief_counts();

// Has CUDA's caching allocator ask, through its free-memory callbacks; false where this process has no CUDA.
bool listen_to_cuda();

}  // namespace bayplan::swap

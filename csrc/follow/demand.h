// Brings back what an operator is about to touch.
#pragma once

#include <ATen/record_function.h>

#include <atomic>

#include "follow/frames.h"
#include "profiler/operators.h"
#include "storage/store.h"

namespace bayplan::swap {

// Look at every argument though nothing is out: what `make bench` measures.
extern std::atomic<bool> look_always;

// Whether what is out has to be looked for among the arguments.
inline bool anything_out() {
  return absent_storages.load(std::memory_order_relaxed) > 0 || look_always.load(std::memory_order_relaxed);
}

// Counted operators touch data. Of the others only those that resize or re-point a storage do, and `record_stream`.
bool touches_data(const OperatorInfo& info);

// One storage that is about to be touched.
void bring_in_if_out(c10::StorageImpl& storage);
// Looks through the frame's arguments, on whichever device; whoever follows that keeps what goes wrong.
void bring_in_arguments(const at::RecordFunction& frame);
// The same for those of the frame that was pinned last which lie on the pins' device: no second look through all.
void bring_in_pinned(const at::RecordFunction& frame, const OpenFrames& own);

}  // namespace bayplan::swap

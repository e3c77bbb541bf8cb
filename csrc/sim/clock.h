// Time and order: integer nanoseconds for "when", vector clocks for "after what".
#pragma once
#include <c10/util/SmallVector.h>

#include <cstddef>
#include <cstdint>

namespace sim {

using Nanoseconds = int64_t;

// For each stream, how many of its operations happened before some point of the program.
class VectorClock {
 public:
  uint64_t of(size_t stream) const { return stream < ticks_.size() ? ticks_[stream] : 0; }

  void raise(size_t stream, uint64_t tick) {
    if (stream >= ticks_.size()) ticks_.resize(stream + 1, 0);
    if (ticks_[stream] < tick) ticks_[stream] = tick;
  }

  // The clock without the latest operation of a stream, which it knows.
  VectorClock before(size_t stream) const {
    VectorClock earlier = *this;
    --earlier.ticks_[stream];
    return earlier;
  }

  void join(const VectorClock& other) {
    if (other.ticks_.size() > ticks_.size()) ticks_.resize(other.ticks_.size(), 0);
    for (size_t i = 0; i < other.ticks_.size(); ++i)
      if (ticks_[i] < other.ticks_[i]) ticks_[i] = other.ticks_[i];
  }

 private:
  c10::SmallVector<uint64_t, 6> ticks_;
};

// What an event records: a moment on the virtual clock and everything that happened before it.
struct Point {
  Nanoseconds time = 0;
  VectorClock past;
  uint64_t generation = 0;  // A reset of the clocks starts a new one; points of older ones lie in the past.
};

struct Span {
  Nanoseconds start = 0;
  Nanoseconds end = 0;
};

}  // namespace sim

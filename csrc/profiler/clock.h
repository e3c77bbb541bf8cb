// The clock of a step: the compute stream's on an accelerator, the host's on a CPU.
#pragma once

#include <cstdint>
#include <vector>

#include "profiler/events.h"

namespace bayplan {

// Marks moments and tells afterwards how far apart they were. On an accelerator a mark is a timing event on the current
// stream: it neither waits nor allocates device memory. On a CPU it is the host's clock less the time that the profiler
// itself has taken so far. The host's clock is kept beside the events, too.
class StepClock {
 public:
  explicit StepClock(c10::Device device) : device_(device) {}

  // Has events ready for so many marks, so that none is made within what is measured.
  void prepare(size_t marks);

  // Marks the moment after the work issued so far, at `host_ns` of the host's clock.
  void mark(int64_t host_ns);

  // Host time spent on bookkeeping, to be left out of the marks that follow.
  void exclude(int64_t host_ns) { excluded_ns_ += host_ns; }

  // The host's own nanoseconds from the first mark to each later one, bookkeeping left out.
  std::vector<int64_t> host_elapsed_ns() const;

  // Nanoseconds from the first mark to each later one; waits for the last one. Never decreasing.
  std::vector<int64_t> elapsed_ns();

 private:
  c10::Stream current() const;

  c10::Device device_;
  std::vector<EventPtr> events_;
  std::vector<int64_t> host_ns_;
  int64_t excluded_ns_ = 0;
};

// The host's monotonic clock.
int64_t host_now_ns();

}  // namespace bayplan

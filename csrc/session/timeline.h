// When the operators of one iteration came to their ends on the compute stream, when the host had issued them, and what
// swapping did in between. From this an iteration without swapping is replayed.
#pragma once

#include <cstdint>
#include <vector>

#include "follow/tape.h"

namespace bayplan::swap {

// Three events for each operator, so for few iterations only.
class Timeline {
 public:
  explicit Timeline(c10::Stream compute);

  // An operator's kernels are queued.
  void end_operator(c10::Stream compute);
  // Between these the swap engine works on the host, and may make the compute stream wait. What lies within counts
  // once.
  void begin_engine(c10::Stream compute);
  void end_engine(c10::Stream compute);

  // Each operator takes what it took, and the host what it needed for it, but the engine takes nothing and nobody waits
  // for it. Where the host waits in the allocator for memory, that counts as its own work. To be asked when the device
  // is through.
  double without_swapping_us() const;

 private:
  struct Record {
    bool engine;
    uint32_t host_begin;     // the engine's
    uint32_t compute_begin;  // likewise: what an operator had queued until then, the stream has done
    uint32_t host;           // mark of the host's clock
    uint32_t compute;        // mark of the compute stream's clock
  };

  Tape tape_;
  c10::Stream idle_;  // has nothing to do, so that an event on it tells when the host recorded it
  std::vector<Record> records_;
  int depth_ = 0;
  uint32_t engine_begin_ = 0;
  uint32_t engine_begin_compute_ = 0;
};

// The engine at work, where that is measured.
class EngineWork {
 public:
  EngineWork(Timeline* timeline, c10::Stream compute) : timeline_(timeline), compute_(compute) {
    if (timeline_ != nullptr) timeline_->begin_engine(compute_);
  }
  ~EngineWork() {
    if (timeline_ != nullptr) timeline_->end_engine(compute_);
  }
  EngineWork(const EngineWork&) = delete;
  EngineWork& operator=(const EngineWork&) = delete;

 private:
  Timeline* timeline_;
  c10::Stream compute_;
};

}  // namespace bayplan::swap

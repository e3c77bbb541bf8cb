// When things happened on the device: marks are timing events, read after the step. Events are kept for the next step,
// and go back to the pool with the tape.
#pragma once

#include <cstdint>
#include <vector>

#include "storage/lanes.h"
#include "storage/waits.h"

namespace bayplan::swap {

class Tape {
 public:
  void rewind() { used_ = 0; }
  // Marks the end of what the stream holds now.
  uint32_t mark(c10::Stream stream) {
    if (used_ == events_.size()) {
      events_.push_back(recorded_event(stream, /*timed=*/true));
    } else {
      events_[used_]->record(stream);
    }
    return used_++;
  }
  void wait(uint32_t mark) const { await(*events_.at(mark)); }
  // Microseconds from mark 0; wait for both first.
  double at_us(uint32_t mark) const { return mark == 0 ? 0.0 : events_.at(0)->elapsedTime(*events_.at(mark)) * 1e3; }
  uint32_t size() const { return used_; }

 private:
  uint32_t used_ = 0;
  std::vector<EventPtr> events_;
};

}  // namespace bayplan::swap

// When things happened on the device: marks are timing events, read after the step. Events are kept for the next step.
#pragma once

#include <c10/core/Event.h>

#include <cstdint>
#include <vector>

#include "storage/lanes.h"

namespace bayplan::swap {

class Tape {
 public:
  explicit Tape(c10::DeviceType type) : type_(type) {}

  void rewind() { used_ = 0; }
  // Marks the end of what the stream holds now.
  uint32_t mark(c10::Stream stream) {
    if (used_ == events_.size()) {
      events_.emplace_back(type_, c10::EventFlag::BACKEND_DEFAULT);
    }
    events_[used_].record(stream);
    return used_++;
  }
  void wait(uint32_t mark) const { events_.at(mark).synchronize(); }
  // Microseconds from mark 0; wait for both first.
  double at_us(uint32_t mark) const { return mark == 0 ? 0.0 : events_.at(0).elapsedTime(events_.at(mark)) * 1e3; }
  uint32_t size() const { return used_; }

 private:
  c10::DeviceType type_;
  uint32_t used_ = 0;
  std::vector<c10::Event> events_;
};

}  // namespace bayplan::swap

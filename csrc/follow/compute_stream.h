// The stream that a training step or loop computes on.
#pragma once

#include <atomic>
#include <optional>

#include "storage/lanes.h"

namespace bayplan::swap {

class ComputeStream {
 public:
  explicit ComputeStream(c10::Device device) : device_(device) {}

  void set(c10::Stream stream) {
    stream_ = stream;
    id_.store(stream.id(), std::memory_order_relaxed);
  }
  bool is_set() const { return stream_.has_value(); }
  const c10::Stream& operator*() const { return *stream_; }

  // Whether the calling thread works on another stream; asked without the store.
  bool is_elsewhere() const { return current_stream(device_).id() != id_.load(std::memory_order_relaxed); }

 private:
  const c10::Device device_;
  std::optional<c10::Stream> stream_;
  std::atomic<c10::StreamId> id_{0};
};

}  // namespace bayplan::swap

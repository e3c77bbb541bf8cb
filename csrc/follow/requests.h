// What an operator takes of a device's memory while it runs, as the device's allocator reports it.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace bayplan::swap {

// Those of the calling thread, from when it is made until `stop`. Allocators report to whoever profiles the thread:
// while somebody else does, nothing is seen here. Blocks in which storages come back (profiler/displaced.h) are the
// engine's, not the operator's.
class Requests {
 public:
  struct Block {
    uintptr_t begin;
    uint64_t bytes;
    size_t number;  // of the request, from 0
  };
  // A request for bytes or, with 0, the end of the block that request `number` was given.
  struct Event {
    uint64_t bytes = 0;
    size_t number = 0;
    bool operator==(const Event& other) const { return bytes == other.bytes && number == other.number; }
  };

  explicit Requests(c10::Device device);
  ~Requests() { stop(); }
  Requests(const Requests&) = delete;
  Requests& operator=(const Requests&) = delete;

  void stop();
  // Whether everything was seen.
  bool complete() const { return complete_; }
  // Requests and ends of their blocks, in order.
  const std::vector<Event>& events() const;
  size_t count() const;  // of requests
  // What was given and is still in use.
  const std::vector<Block>& blocks() const;
  // Bytes of these, and the most that there were.
  uint64_t bytes() const;
  uint64_t peak_bytes() const;
  // What was asked for until the allocator refused a request, with that as the last; empty where it has served one
  // since, or refused none.
  std::vector<Event> until_refused() const;

 private:
  class Listener;
  std::shared_ptr<Listener> listener_;
  bool listens_ = false;
  bool complete_ = false;
};

}  // namespace bayplan::swap

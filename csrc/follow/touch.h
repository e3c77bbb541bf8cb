// What another stream than the compute stream has been given to do with storages. A storage that leaves is copied
// behind that, and its old block is used again behind the copy; so nobody needs to know in which order the program lets
// its streams work.
#pragma once

#include <atomic>
#include <memory>

#include "storage/lanes.h"

namespace bayplan::swap {

// Everything on one stream until the touch is closed, which costs one event for all storages that share it.
class Touch {
 public:
  explicit Touch(c10::Stream stream) : stream_(stream) {}

  c10::Stream stream() const { return stream_; }
  bool closed() const { return end_ != nullptr; }

  // Between these an operator queues its kernels, and the touch stays open. May be called by any thread; all else under
  // the store's lock.
  void begin_operator() { operators_.fetch_add(1); }
  void end_operator() { operators_.fetch_sub(1); }

  // What the stream gets from now on belongs to another touch.
  void close() {
    if (end_ == nullptr && operators_.load() == 0) end_ = record_on(stream_);
  }
  // Makes a stream wait for all that is queued.
  void block(c10::Stream waiter) {
    close();
    (closed() ? end_ : record_on(stream_))->block(waiter);
  }

 private:
  c10::Stream stream_;
  EventPtr end_ = nullptr;
  std::atomic<int> operators_{0};
};

using TouchPtr = std::shared_ptr<Touch>;

}  // namespace bayplan::swap

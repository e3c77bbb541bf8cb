// Where the host must wait for nothing, and what tells if it does. The order of locks is in csrc/README.md.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Event.h>

#include <cstdint>
#include <mutex>

namespace bayplan::swap {

// While one exists, its thread answers an allocator that may hold its own lock: it waits for no thread and not for the
// device, page-locks no memory and gives none back. What needs that is refused, or put off (relief.h, `catch_up`).
class WithoutWaits {
 public:
  WithoutWaits();
  ~WithoutWaits();
  WithoutWaits(const WithoutWaits&) = delete;
  WithoutWaits& operator=(const WithoutWaits&) = delete;

  static bool active();
};

// A store's mutex, recursive, which knows whether the calling thread holds any store.
class StoreMutex {
 public:
  void lock() {
    mutex_.lock();
    ++held_;
  }
  bool try_lock() {
    const bool got = mutex_.try_lock();
    held_ += got ? 1 : 0;
    return got;
  }
  void unlock() {
    --held_;
    mutex_.unlock();
  }
  static bool held() { return held_ > 0; }
  // In a forked process, where all are made anew.
  static void forget_held() { held_ = 0; }

 private:
  std::recursive_mutex mutex_;
  static thread_local int held_;
};
using Lock = std::lock_guard<StoreMutex>;

enum class Awaited : uint8_t { kDevice, kPageLocking, kThreads };

// Called by whatever lets the host wait, right before: counts it where that must not be.
void note_wait(Awaited what);

// Waits that were where none may be. They end in a deadlock, or keep every thread waiting that asks for memory; both
// stay 0.
struct ForbiddenWaits {
  uint64_t under_lock = 0;  // of any kind, while the thread answered an allocator
  uint64_t with_store = 0;  // for other threads, while the thread held the store, which they may wait for
};
ForbiddenWaits forbidden_waits();

// The host waits for what the event recorded.
void await(c10::Event& event);
// The allocator gives its cached memory back to the driver, which waits for the device.
void empty_cache(c10::Device device);

}  // namespace bayplan::swap

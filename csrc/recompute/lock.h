// The lock of a tape.
//
// Who holds it may take Python's: a kernel that runs again may be Python's. Hence nobody waits for a tape's lock with
// Python's in hand: who has that one lets go of it first, and takes it again when the tape's is there.
#pragma once

#include <pthread.h>

#include <atomic>

namespace bayplan::recompute {

class TapeLock {
 public:
  // The same thread may take it again.
  void lock() {
    if (holder_.load(std::memory_order_relaxed) == pthread_self()) {
      ++again_;
    } else if (!try_lock()) {
      wait();
    }
  }
  // False where somebody holds it, the calling thread included.
  bool try_lock() {
    pthread_t nobody = 0;
    return holder_.compare_exchange_strong(nobody, pthread_self());
  }
  void unlock() {
    if (again_ > 0) {
      --again_;
    } else {
      holder_.store(0);
    }
  }

 private:
  void wait();

  std::atomic<pthread_t> holder_{0};
  int again_ = 0;
};

}  // namespace bayplan::recompute

// Memory of small objects of one kind, of which a region has as many at once as autograd saves tensors: more than
// malloc keeps at hand for one size.
#pragma once

#include <atomic>
#include <cstddef>
#include <new>
#include <thread>
#include <vector>

namespace bayplan::recompute {

// A class derives from `Pooled<itself>`, and nothing else derives from it. Objects may go on another thread.
template <typename Kind>
class Pooled {
 public:
  static void* operator new(size_t bytes) {
    Pool& pool = all();
    const Turn turn(pool.taken);
    if (pool.free.empty()) return ::operator new(bytes);
    void* memory = pool.free.back();
    pool.free.pop_back();
    return memory;
  }
  static void* operator new(size_t /*bytes*/, void* place) { return place; }
  static void operator delete(void* memory) {
    Pool& pool = all();
    {
      const Turn turn(pool.taken);
      if (pool.free.size() < kMost) return pool.free.push_back(memory);
    }
    ::operator delete(memory);
  }

 private:
  static constexpr size_t kMost = 4096;
  struct Pool {
    std::atomic<bool> taken{false};
    std::vector<void*> free;
  };
  // A mutex takes as long as what it would guard: nobody holds this one for more than a few instructions.
  class Turn {
   public:
    explicit Turn(std::atomic<bool>& taken) : taken_(taken) {
      while (taken_.exchange(true, std::memory_order_acquire)) std::this_thread::yield();
    }
    ~Turn() { taken_.store(false, std::memory_order_release); }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    std::atomic<bool>& taken_;
  };
  static Pool& all() {
    static auto* pool = new Pool();  // never destroyed: a graph may outlive main
    return *pool;
  }
};

}  // namespace bayplan::recompute

// Who is followed on which device, and for whom a thread works. Readable without a lock from every thread, at any time:
// nothing here looks into a follower, which another thread may be about to take away.
//
// A thread that trains is marked by an observer that sees nothing. PyTorch carries a thread's own observers to the
// autograd threads that work for it, from task to task, so that these bear the mark of the thread they work for.
#pragma once

#include <ATen/record_function.h>

#include <array>
#include <atomic>
#include <bitset>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "follow/follower.h"
#include "profiler/by_device.h"

namespace bayplan::swap {

// Devices, by place.
using Places = std::bitset<kPlaces>;

class Followers {
 public:
  static Followers& get();

  Follower* at(size_t place) const { return seats_[place].follower.load(std::memory_order_acquire); }
  // The only one, or null: there are none, or several.
  Follower* only() const { return only_.load(std::memory_order_acquire); }
  // Whether there are several.
  bool several() const { return count_.load(std::memory_order_relaxed) > 1; }
  // Places from there on have never had a follower.
  size_t most() const { return most_.load(std::memory_order_relaxed); }
  // The current device of the calling thread, of the type that is followed.
  size_t current_place() const;

  // Whether the follower at that place is told every operator of the calling thread, not only those that touch its
  // device: the thread trains for it, or is one of autograd's that works for it; a step looks for itself.
  bool owns(size_t place) const;

  // The calling thread trains; whether it had no mark so far.
  bool mark_thread();
  // The follower of a device, or null; its training thread, which was marked, and whether it looks for itself.
  void set(c10::Device device, Follower* follower, std::thread::id thread, bool sees_all);
  void clear();

  // While somebody has it nobody comes or goes.
  std::mutex& lock() { return lock_; }

 private:
  struct Seat {
    std::atomic<Follower*> follower{nullptr};
    std::atomic<std::thread::id> thread{};
    std::atomic<at::CallbackHandle> mark{at::INVALID_CALLBACK_HANDLE};
    std::atomic<bool> sees_all{false};
  };
  void count();

  std::array<Seat, kPlaces> seats_;
  std::atomic<Follower*> only_{nullptr};
  std::atomic<size_t> count_{0};
  std::atomic<size_t> most_{0};
  std::unordered_map<std::thread::id, at::CallbackHandle> marks_;  // under the lock
  std::atomic<c10::DeviceType> type_{c10::DeviceType::CPU};
  std::mutex lock_;
};

}  // namespace bayplan::swap

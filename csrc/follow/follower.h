// Whoever follows the program's operators: a step that executes a schedule, or a session. The guard hands the active
// one each operator, and asks it for storages that are out. What both need stands here: the device and its compute
// stream, the store, and the first error.
#pragma once

#include <ATen/core/operator_name.h>
#include <ATen/record_function.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/StorageImpl.h>

#include <atomic>
#include <exception>
#include <thread>
#include <vector>

#include "follow/compute_stream.h"
#include "follow/touch.h"
#include "storage/store.h"

namespace bayplan::swap {

using StoragePtr = c10::intrusive_ptr<c10::StorageImpl>;
using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;

// Of an allocator's statistics, those of all pools together.
constexpr auto kAllPools = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);

// Storages that operators of a thread are using now.
using Pins = std::vector<c10::StorageImpl*>;

class Follower {
 public:
  // What is followed: one training step, under a schedule, or a whole training loop, in a session.
  enum class Kind : uint8_t { kStep, kSession };

  virtual ~Follower() = default;
  Follower(const Follower&) = delete;
  Follower& operator=(const Follower&) = delete;

  // The one that follows that device now, or null: one at a time.
  static Follower* active(c10::Device device);
  // The same for the calling thread's current device: allocators ask with their device as that.
  static Follower* active_on_current();
  // In a forked process, which follows nothing.
  static void forget_all();

  Kind kind() const { return kind_; }
  bool is_active() const { return active(device_) == this; }
  c10::Device device() const { return device_; }
  // Whether operators are followed while nothing is out.
  bool watching() const { return watching_.load(std::memory_order_relaxed); }
  // Whether the guard has to tell the results of operators, as it was when it last asked (`renew_guard`).
  bool wants_results() const { return wants_results_.load(std::memory_order_relaxed); }
  // Whether the calling thread works for this: the thread that trains, or one of autograd's (followers.h).
  bool owns_thread() const;
  // Whether it is the thread that trains. Under the store's lock.
  bool trains_here() const { return std::this_thread::get_id() == thread_; }

  // PyTorch swallows what an observer throws, so the first error is kept, and the first one of the other kind behind
  // it, where one of both tells of a short host: that alone ends nothing, but what it leads to may.
  void keep_error(std::exception_ptr error);
  // What is kept, rethrown one after the other, a call each; nothing if there is no more.
  void raise_error();
  bool failed() const { return error_ != nullptr; }

  // ---- called by the guard

  // An operator begins, on any thread, nested ones too: also brings back what it is about to touch. False: somebody
  // else is followed by now, and the operator has to be told to him.
  virtual bool begin_frame(const at::RecordFunction& frame) = 0;
  // It has ended.
  virtual void end_frame(const at::RecordFunction& frame) = 0;
  // Whether the results of operators have to be told.
  virtual bool needs_results() const = 0;
  // An operator needs a storage that may be out.
  virtual void demand(c10::StorageImpl& storage) = 0;
  // An operator's kernels are queued on another stream than the compute stream; these are storages that it has made.
  virtual void end_elsewhere(Touch& /*touch*/, const std::vector<WeakStorage>& /*made*/) {}

  // That operator, which the calling thread runs, found no memory and holds none any more: makes place for it outside
  // of the allocator; whether it may find some now.
  virtual bool make_place_again(const c10::OperatorName& /*name*/) { return false; }

  // ---- called by others

  // Somebody knows the storage's address: it stays until the step or the iteration ends.
  virtual void hold(c10::StorageImpl& storage) = 0;
  // Answers a request for memory that lacks so many bytes; whether anything was freed.
  virtual bool relieve(uint64_t /*missing*/, unsigned /*attempt*/, const Pins& /*pins*/) { return false; }
  // What the allocator lacks for so many requests, each for as much as the largest storage, where it does not say how
  // much it is asked for: bytes.
  virtual uint64_t shortage(unsigned /*requests*/) const { return 0; }
  // The same once the allocator has given back to the driver what it can: exact, and dear, as the device is waited for.
  // Where nobody may wait (storage/waits.h) as far as is known.
  virtual uint64_t shortage_without_cache(unsigned requests) { return shortage(requests); }
  // The allocator has no block for a request, does not say of what size, and asks: until `end_request` the shortage is
  // that of this request.
  virtual void begin_request() {}
  virtual void end_request() {}
  // The largest storage that was seen and lives: bytes.
  virtual uint64_t largest_bytes() const { return 0; }
  // What may have to leave at once, where nobody may wait: bytes.
  virtual uint64_t leaving_bytes() const { return 0; }

 protected:
  Follower(Kind kind, c10::Device device);

  // Who follows this one's device from now on, or null.
  void set_active(Follower* follower) const;
  // That thread trains. Under the store's lock.
  void follow_from(std::thread::id thread);
  // What it wants of the guard has changed, or whether it follows at all.
  void renew_guard();
  // Called with the first error, once.
  virtual void on_error() {}
  void forget_error() { error_ = behind_ = nullptr; }

  // Counts of the store and peaks of memory begin anew.
  void begin_counting();
  // What the store has done since then or since the last call.
  StoreCounts take_counts();
  c10::CachingDeviceAllocator::DeviceStats memory() const;
  c10::CachingAllocator::Stat allocated() const;

  const c10::Device device_;
  Store& store_;
  ComputeStream compute_;
  std::atomic<bool> watching_{true};

 private:
  const Kind kind_;
  std::thread::id thread_;
  std::atomic<bool> wants_results_{false};
  StoreCounts counts_before_;
  std::exception_ptr error_;
  std::exception_ptr behind_;
};

// Runs a callback's body, and lets the follower keep what it throws; null: nobody does.
template <typename Body>
void guarded(Follower* follower, const Body& body) {
  try {
    body();
  } catch (...) {
    if (follower != nullptr) follower->keep_error(std::current_exception());
  }
}

// The storage if it is out because of the swap-out whose copy ends with that event, and has got to that place; else
// null. A storage may have left once more since, for somebody else's reasons.
StoragePtr out_since(StoragePtr storage, const EventPtr& copied_out, Place place);

}  // namespace bayplan::swap

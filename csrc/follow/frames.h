// Which operators each thread is inside of, and which storages these use.
#pragma once

#include <ATen/record_function.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "follow/follower.h"
#include "follow/requests.h"
#include "profiler/operators.h"

namespace bayplan::swap {

// Where a thread stands among the operators that a step or session is told of, since that began to follow it.
struct ThreadPlace {
  c10::Device device;
  uint64_t epoch = 0;
  FrameTracker tracker = {};
  bool foreign = false;  // in an operator on the step's device that is not the step's
  int compiled = 0;      // depth of regions of torch.compile

  // Whether no step or session of the device has begun, stopped or paused meanwhile.
  bool is_current() const;
};

// The calling thread's for the device's follower, made anew after `forget_frames`.
ThreadPlace& thread_place(c10::Device device);

// A step begins on the device, or a session starts, stops or is paused: no thread is in an operator of it.
void forget_frames(c10::Device device);

// What a thread holds of a device until its frames end, whoever starts or stops meanwhile: PyTorch tells the end of
// each frame whose begin it told.
class OpenFrames {
 public:
  explicit OpenFrames(c10::Device device) : device_(device) {}
  OpenFrames(const OpenFrames&) = delete;
  OpenFrames& operator=(const OpenFrames&) = delete;

  // An operator that works on another stream than the compute stream.
  struct Elsewhere {
    const at::RecordFunction* frame;
    TouchPtr touch;
    bool unseen;  // the frame will not tell its results
  };

  // The calling thread's.
  static OpenFrames& of_thread(c10::Device device);
  // All that the calling thread has, of whichever devices.
  static const std::vector<OpenFrames*>& all_of_thread();

  c10::Device device() const { return device_; }
  // Where the pins of a frame begin that has some.
  size_t first_of(const at::RecordFunction& frame) const;
  // Notes the storages among the arguments; whether there were any on the device.
  bool pin_arguments(const at::RecordFunction& frame);
  // Whether the frame had any.
  bool has_pinned(const at::RecordFunction& frame) const;
  // The storages of all frames, those of the latest frame from `first` on.
  const Pins& pins() const { return pins_; }
  size_t first() const { return first_; }
  // Whether the latest frame has an argument on another device, the host excepted.
  bool has_other_device() const { return other_device_; }

  // The counted operator that the thread is in, if a session follows it.
  const at::RecordFunction* outermost() const { return outermost_; }
  void set_outermost(const at::RecordFunction& frame) {
    if (outermost_ != nullptr) return;
    outermost_ = &frame;
    requesting_ = nullptr;
  }
  // The operator works on the device from now on.
  void start_computing();
  bool computes() const { return computing_ != nullptr; }
  // From now on it is seen what the operator takes, until the thread lets go of it.
  void see_requests(const at::RecordFunction& frame);
  // What that operator has taken, also when it has just ended; null where it is not seen.
  const Requests* requests_of(const at::RecordFunction& frame) const;
  // The frame holds nothing any more. Before anything that may wait for the store.
  void let_go(const at::RecordFunction& frame);

  // Whether the latest frame works with nothing but what the operators around it were given or have made, on the stream
  // that they work on.
  bool is_within_elsewhere(c10::Stream stream) const;
  void begin_elsewhere(Elsewhere elsewhere) { elsewheres_.push_back(std::move(elsewhere)); }
  // The frame's kernels are queued: answers what it did elsewhere, for when the thread has let go of it.
  std::optional<Elsewhere> end_elsewhere(const at::RecordFunction& frame);
  // What the frames inside the first one elsewhere have made.
  const std::vector<WeakStorage>& made() const { return made_; }
  // Those are told; forgets them after the outermost frame elsewhere.
  void told_made();

 private:
  struct Mark {
    const at::RecordFunction* frame;
    size_t pins;  // how many were there before it
  };
  void unpin(const at::RecordFunction& frame);

  const c10::Device device_;
  Pins pins_ = {};
  std::vector<Mark> marks_ = {};  // by open frame with pins
  size_t first_ = 0;
  bool other_device_ = false;
  const at::RecordFunction* outermost_ = nullptr;
  const at::RecordFunction* computing_ = nullptr;  // the same once it counts as computing
  std::unique_ptr<Requests> requests_;
  const at::RecordFunction* requesting_ = nullptr;
  std::vector<Elsewhere> elsewheres_ = {};
  std::vector<WeakStorage> made_ = {};
};

// Whether another thread is inside an operator on the device that a session has followed.
bool others_compute(c10::Device device);
// Whether the calling thread computes a part of one operator beside other threads, as PyTorch's own threads (OpenMP's)
// do: the operator, and the thread that called it, end after it.
bool serves_another();
// Waits until none is, a second at most; whether none is. A thread inside an operator holds bare addresses, which ones
// only it knows, and other threads' operators are short. Who serves one of them does not wait: it waits for him.
bool wait_for_others(c10::Device device);
// While one exists, its thread waits for the others, who begin no further operator on the device for as long.
class GoingFirst {
 public:
  explicit GoingFirst(c10::Device device);
  ~GoingFirst();
  GoingFirst(const GoingFirst&) = delete;
  GoingFirst& operator=(const GoingFirst&) = delete;

 private:
  const c10::Device device_;
};
// Before the calling thread, which is in no operator, takes the store for one: waits for whoever goes first, a second
// at most.
void let_others_go_first(c10::Device device);
// Whether the calling thread runs code of torch.compile, which hands addresses about where no operator tells.
bool in_compiled_code(c10::Device device);
// The iteration of the device's session, by its epoch, in which the thread has begun an optimizer's step; 0: none.
uint64_t& optimizing(c10::Device device);
// In a forked process, which has the calling thread alone.
void forget_other_threads();

}  // namespace bayplan::swap

#include "follow/frames.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <iterator>
#include <optional>
#include <thread>
#include <utility>

#include "follow/gil.h"
#include "profiler/storages.h"

namespace bayplan::swap {
namespace {

constexpr auto kPatience = std::chrono::milliseconds(1000);

ByDevice<std::atomic<uint64_t>> epochs;  // a new one forgets where the threads are
ByDevice<std::atomic<int>> computing;    // threads in a counted operator on the device
ByDevice<std::atomic<int>> going_first;  // threads that wait until there are none

// What a thread has to do with a device.
struct Dealings {
  explicit Dealings(c10::Device device) : place{device}, frames(device) {}
  ThreadPlace place;
  OpenFrames frames;
  uint64_t optimizing = 0;
};

class AllDealings {
 public:
  Dealings& with(c10::Device device) {
    std::unique_ptr<Dealings>& found = by_device_[device];
    return found != nullptr ? *found : begin(device, found);
  }
  const std::vector<OpenFrames*>& frames() const { return frames_; }

 private:
  Dealings& begin(c10::Device device, std::unique_ptr<Dealings>& place) {
    place = std::make_unique<Dealings>(device);
    frames_.push_back(&place->frames);
    return *place;
  }
  ByDevice<std::unique_ptr<Dealings>> by_device_;
  std::vector<OpenFrames*> frames_;
};

AllDealings& of_this_thread() {
  thread_local AllDealings all;
  return all;
}

}  // namespace

bool ThreadPlace::is_current() const { return epoch == epochs[device].load(std::memory_order_relaxed); }

ThreadPlace& thread_place(c10::Device device) {
  ThreadPlace& place = of_this_thread().with(device).place;
  const uint64_t now = epochs[device].load(std::memory_order_relaxed);
  if (place.epoch != now) place = ThreadPlace{device, now};
  return place;
}

void forget_frames(c10::Device device) { ++epochs[device]; }

OpenFrames& OpenFrames::of_thread(c10::Device device) { return of_this_thread().with(device).frames; }

const std::vector<OpenFrames*>& OpenFrames::all_of_thread() { return of_this_thread().frames(); }

uint64_t& optimizing(c10::Device device) { return of_this_thread().with(device).optimizing; }

bool OpenFrames::pin_arguments(const at::RecordFunction& frame) {
  first_ = pins_.size();
  other_device_ = false;
  for (const c10::IValue& value : frame.inputs()) {
    for_each_tensor(value, [&](const at::Tensor& tensor) {
      const c10::Storage* storage = storage_on(device_, tensor);
      if (storage != nullptr) {
        pins_.push_back(storage->unsafeGetStorageImpl());
      } else {
        other_device_ = other_device_ || !tensor.is_cpu();
      }
    });
  }
  if (pins_.size() == first_) return false;
  marks_.push_back({&frame, first_});
  return true;
}

bool OpenFrames::has_pinned(const at::RecordFunction& frame) const {
  return std::any_of(marks_.rbegin(), marks_.rend(), [&](const Mark& mark) { return mark.frame == &frame; });
}

size_t OpenFrames::first_of(const at::RecordFunction& frame) const {
  const auto mark = std::find_if(marks_.begin(), marks_.end(), [&](const Mark& one) { return one.frame == &frame; });
  return mark == marks_.end() ? pins_.size() : mark->pins;
}

void OpenFrames::unpin(const at::RecordFunction& frame) {
  const auto is_of = [&](const Mark& mark) { return mark.frame == &frame; };
  const auto mark = std::find_if(marks_.rbegin(), marks_.rend(), is_of);
  if (mark == marks_.rend()) return;
  pins_.resize(mark->pins);
  marks_.erase(std::next(mark).base(), marks_.end());
}

void OpenFrames::start_computing() {
  if (computing_ != nullptr) return;
  computing_ = outermost_;
  computing[device_].fetch_add(1, std::memory_order_relaxed);
}

void OpenFrames::see_requests(const at::RecordFunction& frame) {
  requests_.reset();  // before the next one listens
  requests_ = std::make_unique<Requests>(device_);
  requesting_ = &frame;
}

const Requests* OpenFrames::requests_of(const at::RecordFunction& frame) const {
  return requesting_ == &frame && requests_->complete() ? requests_.get() : nullptr;
}

void OpenFrames::let_go(const at::RecordFunction& frame) {
  if (requesting_ == &frame) requests_->stop();
  unpin(frame);
  if (outermost_ == &frame) outermost_ = nullptr;
  if (computing_ != &frame) return;
  computing_ = nullptr;
  computing[device_].fetch_sub(1, std::memory_order_relaxed);
}

bool OpenFrames::is_within_elsewhere(c10::Stream stream) const {
  if (elsewheres_.empty() || elsewheres_.back().touch->stream() != stream) return false;
  const auto known = pins_.begin() + static_cast<std::ptrdiff_t>(first_);
  return std::all_of(known, pins_.end(), [&](c10::StorageImpl* storage) {
    const auto is_it = [storage](const auto& weak) { return weak._unsafe_get_target() == storage; };
    return std::find(pins_.begin(), known, storage) != known || std::any_of(made_.begin(), made_.end(), is_it);
  });
}

std::optional<OpenFrames::Elsewhere> OpenFrames::end_elsewhere(const at::RecordFunction& frame) {
  if (elsewheres_.empty()) return std::nullopt;
  for (const c10::IValue& value : frame.outputs()) {
    for_each_tensor(value, [&](const at::Tensor& tensor) {
      if (tensor.unsafeGetTensorImpl()->has_storage()) made_.push_back(tensor.storage().getWeakStorageImpl());
    });
  }
  if (elsewheres_.back().frame != &frame) return std::nullopt;
  Elsewhere ended = std::move(elsewheres_.back());
  elsewheres_.pop_back();
  ended.touch->end_operator();
  return ended;
}

void OpenFrames::told_made() {
  if (elsewheres_.empty()) made_.clear();
}

bool others_compute(c10::Device device) {
  return computing[device].load(std::memory_order_relaxed) > (OpenFrames::of_thread(device).computes() ? 1 : 0);
}

bool serves_another() { return at::in_parallel_region(); }

bool wait_for_others(c10::Device device) {
  if (serves_another()) return !others_compute(device);
  if (!others_compute(device)) return true;
  note_wait(Awaited::kThreads);
  std::optional<WithoutGil> now;
  if (!StoreMutex::held()) now.emplace();  // whoever has the GIL may wait for the store
  const auto limit = std::chrono::steady_clock::now() + kPatience;
  while (others_compute(device)) {
    if (std::chrono::steady_clock::now() > limit) return false;
    std::this_thread::yield();
  }
  return true;
}

GoingFirst::GoingFirst(c10::Device device) : device_(device) { going_first[device_].fetch_add(1); }

GoingFirst::~GoingFirst() { going_first[device_].fetch_sub(1); }

void let_others_go_first(c10::Device device) {
  if (going_first[device].load(std::memory_order_relaxed) == 0 || serves_another() || StoreMutex::held()) return;
  const WithoutGil now;
  const auto limit = std::chrono::steady_clock::now() + kPatience;
  while (going_first[device].load(std::memory_order_relaxed) > 0 && std::chrono::steady_clock::now() < limit)
    std::this_thread::yield();
}

bool in_compiled_code(c10::Device device) { return thread_place(device).compiled > 0; }

void forget_other_threads() {
  for (size_t place = 0; place < kPlaces; ++place) computing.at_place(place) = going_first.at_place(place) = 0;
  for (const OpenFrames* own : OpenFrames::all_of_thread()) computing[own->device()] = own->computes() ? 1 : 0;
}

}  // namespace bayplan::swap

#include "follow/frames.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <iterator>
#include <thread>
#include <utility>

#include "profiler/storages.h"

namespace bayplan::swap {
namespace {

constexpr auto kPatience = std::chrono::milliseconds(1000);

std::atomic<uint64_t> epoch{0};  // a new one forgets where the threads are
std::atomic<int> computing{0};   // threads in a counted operator on the session's device

thread_local OpenFrames open_frames;

}  // namespace

bool ThreadPlace::is_current() const { return epoch == swap::epoch.load(std::memory_order_relaxed); }

ThreadPlace& thread_place() {
  thread_local ThreadPlace place;
  const uint64_t now = epoch.load(std::memory_order_relaxed);
  if (place.epoch != now) place = ThreadPlace{now};
  return place;
}

void forget_frames() { ++epoch; }

OpenFrames& OpenFrames::of_thread() { return open_frames; }

bool OpenFrames::pin_arguments(c10::Device device, const at::RecordFunction& frame) {
  first_ = pins_.size();
  other_device_ = false;
  for (const c10::IValue& value : frame.inputs()) {
    for_each_tensor(value, [&](const at::Tensor& tensor) {
      const c10::Storage* storage = storage_on(device, tensor);
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
  computing.fetch_add(1, std::memory_order_relaxed);
}

void OpenFrames::let_go(const at::RecordFunction& frame) {
  unpin(frame);
  if (outermost_ == &frame) outermost_ = nullptr;
  if (computing_ != &frame) return;
  computing_ = nullptr;
  computing.fetch_sub(1, std::memory_order_relaxed);
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

bool others_compute() { return computing.load(std::memory_order_relaxed) > (open_frames.computes() ? 1 : 0); }

bool wait_for_others() {
  const auto limit = std::chrono::steady_clock::now() + kPatience;
  if (others_compute()) note_wait(Awaited::kThreads);
  while (others_compute()) {
    if (std::chrono::steady_clock::now() > limit) return false;
    std::this_thread::yield();
  }
  return true;
}

bool in_compiled_code() { return thread_place().compiled > 0; }

void forget_other_threads() { computing = open_frames.computes() ? 1 : 0; }

}  // namespace bayplan::swap

#include "follow/followers.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <memory>

namespace bayplan::swap {
namespace {

bool in_backward() { return torch::autograd::get_current_graph_task_id() != -1; }

// Whether the calling thread bears the mark, of its own or of the one it works for.
bool bears(at::CallbackHandle mark) {
  const auto& observers = at::get_record_function_tls_().sorted_tls_callbacks_;
  return std::any_of(observers.begin(), observers.end(), [mark](const auto& entry) { return entry.handle_ == mark; });
}

}  // namespace

Followers& Followers::get() {
  static auto* followers = new Followers();  // never destroyed: other threads may still run operators at exit
  return *followers;
}

size_t Followers::current_place() const {
  const c10::DeviceType type = type_.load(std::memory_order_relaxed);
  return type == c10::DeviceType::CPU ? kPlaces - 1 : place_of(c10::impl::VirtualGuardImpl(type).getDevice());
}

bool Followers::owns(size_t place) const {
  const Seat& seat = seats_[place];
  if (seat.thread.load(std::memory_order_relaxed) == std::this_thread::get_id() ||
      seat.sees_all.load(std::memory_order_relaxed))
    return true;
  return in_backward() && bears(seat.mark.load(std::memory_order_relaxed));
}

// Of a scope that nothing here runs in, so that it costs nothing. It stays as long as the thread.
bool Followers::mark_thread() {
  const std::lock_guard<std::mutex> held(lock_);
  at::CallbackHandle& mark = marks_.try_emplace(std::this_thread::get_id(), at::INVALID_CALLBACK_HANDLE).first->second;
  if (mark != at::INVALID_CALLBACK_HANDLE && bears(mark)) return false;
  const auto nothing = [](const at::RecordFunction&) -> std::unique_ptr<at::ObserverContext> { return nullptr; };
  mark =
      at::addThreadLocalCallback(at::RecordFunctionCallback(nothing).scopes({at::RecordScope::STATIC_RUNTIME_MODEL}));
  return true;
}

void Followers::set(c10::Device device, Follower* follower, std::thread::id thread, bool sees_all) {
  const std::lock_guard<std::mutex> held(lock_);
  TORCH_CHECK(follower == nullptr || count_.load() == 0 || type_.load() == device.type(),
              "operators are followed on devices of type ", type_.load(), " already: end that before device ", device,
              " is followed");
  if (follower != nullptr) type_.store(device.type());
  Seat& seat = seats_[place_of(device)];
  seat.thread.store(thread);
  const auto mark = marks_.find(thread);
  seat.mark.store(mark == marks_.end() ? at::INVALID_CALLBACK_HANDLE : mark->second);
  seat.sees_all.store(sees_all);
  seat.follower.store(follower, std::memory_order_release);
  count();
}

void Followers::clear() {
  for (Seat& seat : seats_) seat.follower.store(nullptr);
  count();
}

void Followers::count() {
  Follower* last = nullptr;
  size_t found = 0;
  for (size_t place = 0; place < kPlaces; ++place) {
    Follower* follower = at(place);
    if (follower == nullptr) continue;
    last = follower;
    ++found;
    if (most_.load() <= place) most_.store(place + 1);
  }
  count_.store(found);
  only_.store(found == 1 ? last : nullptr, std::memory_order_release);
}

}  // namespace bayplan::swap

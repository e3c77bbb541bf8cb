#include "follow/guard.h"

#include <atomic>
#include <mutex>
#include <optional>

#include "follow/demand.h"
#include "follow/followers.h"
#include "follow/frames.h"
#include "storage/store.h"

namespace bayplan::swap {
namespace {

at::CallbackHandle handle = at::INVALID_CALLBACK_HANDLE;       // under the followers' lock
at::CallbackHandle idle_handle = at::INVALID_CALLBACK_HANDLE;  // likewise
std::atomic<bool> with_results{false};

Follower* if_watching(Follower* follower) { return follower != nullptr && follower->watching() ? follower : nullptr; }

// The devices that the operator has arguments on.
Places touched_by(const at::RecordFunction& frame) {
  Places touched;
  for (const c10::IValue& value : frame.inputs()) {
    for_each_tensor(value, [&](const at::Tensor& tensor) {
      if (!tensor.is_cpu()) touched.set(place_of(tensor.device()));
    });
  }
  return touched;
}

// The one that follows a device, by its place, is told of the operator; whether there was one. Who takes over meanwhile
// is told instead.
bool tell(size_t place, const at::RecordFunction& frame) {
  while (Follower* follower = if_watching(Followers::get().at(place))) {
    if (follower->begin_frame(frame)) return true;
  }
  return false;
}

// Everybody whose thread this is, or whose device the operator touches; whether it touches one that nobody follows.
bool tell_all(const at::RecordFunction& frame) {
  const Followers& all = Followers::get();
  Places touched = touched_by(frame);
  for (size_t place = 0; place < all.most(); ++place) {
    if (all.at(place) != nullptr && (touched[place] || all.owns(place)) && tell(place, frame)) touched.reset(place);
  }
  return touched.any();
}

std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& frame) {
  Followers& all = Followers::get();
  if (all.several()) {
    if (!tell_all(frame)) return nullptr;
  } else if (const Follower* only = all.only()) {
    const c10::Device device = only->device();
    if (tell(place_of(device), frame) && !OpenFrames::of_thread(device).has_other_device()) return nullptr;
  }
  if (anything_out()) bring_in_arguments(frame);
  return nullptr;
}

void tell_elsewhere(const OpenFrames::Elsewhere& ended, OpenFrames& own) {
  if (Follower* follower = if_watching(Follower::active(own.device())))
    follower->end_elsewhere(*ended.touch, own.made());
  own.told_made();
  if (ended.unseen) await(*record_on(ended.touch->stream()));
}

void end_on(OpenFrames& own, const at::RecordFunction& frame, bool several) {
  Follower* follower = Follower::active(own.device());
  const bool told = !several || own.has_pinned(frame) || Followers::get().owns(place_of(own.device()));
  const std::optional<OpenFrames::Elsewhere> ended = own.end_elsewhere(frame);
  own.let_go(frame);
  if (ended.has_value()) guarded(follower, [&] { tell_elsewhere(*ended, own); });
  if (told && if_watching(follower) != nullptr) guarded(follower, [&] { follower->end_frame(frame); });
}

void on_end(const at::RecordFunction& frame, at::ObserverContext* /*context*/) {
  const bool several = Followers::get().several();
  for (OpenFrames* own : OpenFrames::all_of_thread()) end_on(*own, frame, several);
}

void subscribe(bool results) {
  handle = at::addGlobalCallback(at::RecordFunctionCallback(on_start, on_end)
                                     .needsInputs(true)
                                     .needsOutputs(results)
                                     .scopes({at::RecordScope::FUNCTION}));
  with_results.store(results);
}

void unsubscribe() {
  at::removeCallback(handle);
  handle = at::INVALID_CALLBACK_HANDLE;
}

}  // namespace

// Another thread's follower may be about to go, but does not while the lock is held.
void refresh_guard() {
  Followers& all = Followers::get();
  const std::lock_guard<std::mutex> locked(all.lock());
  Store::set_listener(&refresh_guard);
  bool wanted = anything_out(), results = false;
  for (size_t place = 0; place < all.most(); ++place) {
    const Follower* follower = if_watching(all.at(place));
    wanted = wanted || follower != nullptr;
    results = results || (follower != nullptr && follower->wants_results());
  }
  const bool on = handle != at::INVALID_CALLBACK_HANDLE;
  if (on && (!wanted || results != with_results.load())) unsubscribe();
  if (wanted && handle == at::INVALID_CALLBACK_HANDLE) subscribe(results);
}

bool guard_has_results() { return with_results.load(std::memory_order_relaxed); }

void hold_guard(bool hold) {
  look_always.store(hold);
  refresh_guard();
}

void hold_idle_observer(bool hold) {
  const std::lock_guard<std::mutex> locked(Followers::get().lock());
  if (idle_handle != at::INVALID_CALLBACK_HANDLE) at::removeCallback(idle_handle);
  idle_handle = at::INVALID_CALLBACK_HANDLE;
  if (!hold) return;
  const auto start = [](const at::RecordFunction&) -> std::unique_ptr<at::ObserverContext> { return nullptr; };
  const auto end = [](const at::RecordFunction&, at::ObserverContext*) {};
  idle_handle = at::addGlobalCallback(
      at::RecordFunctionCallback(start, end).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
}

bool guard_is_on() {
  const std::lock_guard<std::mutex> locked(Followers::get().lock());
  return handle != at::INVALID_CALLBACK_HANDLE;
}

}  // namespace bayplan::swap

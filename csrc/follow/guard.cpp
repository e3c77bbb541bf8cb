#include "follow/guard.h"

#include <atomic>
#include <mutex>
#include <optional>

#include "follow/demand.h"
#include "follow/follower.h"
#include "follow/frames.h"
#include "storage/store.h"

namespace bayplan::swap {
namespace {

at::CallbackHandle handle = at::INVALID_CALLBACK_HANDLE;       // under the store's lock
at::CallbackHandle idle_handle = at::INVALID_CALLBACK_HANDLE;  // likewise
std::atomic<bool> with_results{false};

Follower* watching_follower() {
  Follower* follower = Follower::active();
  return follower != nullptr && follower->watching() ? follower : nullptr;
}

std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& frame) {
  while (Follower* follower = watching_follower()) {
    if (follower->begin_frame(frame)) return nullptr;
  }
  if (anything_out()) guarded([&] { bring_in_arguments(frame); });
  return nullptr;
}

void tell_elsewhere(const OpenFrames::Elsewhere& ended, OpenFrames& own) {
  if (Follower* follower = watching_follower()) follower->end_elsewhere(*ended.touch, own.made());
  own.told_made();
  if (ended.unseen) await(*record_on(ended.touch->stream()));
}

void on_end(const at::RecordFunction& frame, at::ObserverContext* /*context*/) {
  OpenFrames& own = OpenFrames::of_thread();
  const std::optional<OpenFrames::Elsewhere> ended = own.end_elsewhere(frame);
  own.let_go(frame);
  if (ended.has_value()) guarded([&] { tell_elsewhere(*ended, own); });
  if (Follower* follower = watching_follower()) guarded([&] { follower->end_frame(frame); });
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

void refresh_guard() {
  Store& store = Store::get();
  const Lock locked(store.lock);
  store.set_listener(&refresh_guard);
  const Follower* follower = watching_follower();
  const bool wanted = follower != nullptr || store.absent() > 0 || look_always.load();
  const bool results = follower != nullptr && follower->needs_results();
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
  const Lock locked(Store::get().lock);
  if (idle_handle != at::INVALID_CALLBACK_HANDLE) at::removeCallback(idle_handle);
  idle_handle = at::INVALID_CALLBACK_HANDLE;
  if (!hold) return;
  const auto start = [](const at::RecordFunction&) -> std::unique_ptr<at::ObserverContext> { return nullptr; };
  const auto end = [](const at::RecordFunction&, at::ObserverContext*) {};
  idle_handle = at::addGlobalCallback(
      at::RecordFunctionCallback(start, end).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
}

bool guard_is_on() {
  const Lock locked(Store::get().lock);
  return handle != at::INVALID_CALLBACK_HANDLE;
}

}  // namespace bayplan::swap

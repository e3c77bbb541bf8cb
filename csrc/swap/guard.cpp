#include "swap/guard.h"

#include <algorithm>
#include <atomic>
#include <string>
#include <utility>

#include "profiler/operators.h"
#include "swap/reading.h"
#include "swap/step.h"
#include "swap/store.h"
#include "swap/threads.h"

namespace bayplan::swap {
namespace {

at::CallbackHandle handle = at::INVALID_CALLBACK_HANDLE;  // under the store's lock
std::atomic<bool> with_results{false};
std::atomic<bool> held_on{false};
std::atomic<uint64_t> session{0};  // a new one forgets what the threads believe to be in

struct ThreadState {
  uint64_t session = 0;
  FrameTracker tracker;
  bool abroad = false;  // in an operator on the step's device that is not the step's
};

ThreadState& thread_state() {
  thread_local ThreadState state;
  const uint64_t now = session.load(std::memory_order_relaxed);
  if (state.session != now) state = ThreadState{now, FrameTracker()};
  return state;
}

// Counted operators touch data. Of the others only those that resize or re-point a storage do, and `record_stream`.
bool touches_data(const OperatorInfo& info) {
  return info.counted || std::find(info.writes.begin(), info.writes.end(), true) != info.writes.end() ||
         info.name == "aten::record_stream";
}

void bring_in(c10::StorageImpl& storage) {
  Store& store = Store::get();
  try {
    Step* step = Step::active();
    step != nullptr ? step->demand(storage) : static_cast<void>(store.ensure_in(storage, Users::kAnyStream));
  } catch (const std::exception& error) {  // the operator will find the storage out, and say why
    const std::string reason = std::string(error.what()).substr(0, std::string(error.what()).find('\n'));
    forbid_reading(storage,
                   "this tensor's storage is swapped out to the host and could not be brought back: " + reason);
    throw;
  }
}

// Most operators meet nothing that is out, so what kind of operator it is, is asked last.
void bring_in_arguments(const at::RecordFunction& frame) {
  for (const c10::IValue& value : frame.inputs()) {
    for_each_tensor(value, [&](const at::Tensor& tensor) {
      if (!tensor.unsafeGetTensorImpl()->has_storage()) return;
      c10::StorageImpl* storage = tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
      if (storage == nullptr || Store::entry_of(*storage) == nullptr) return;
      const OperatorInfo* info = find_operator(frame);
      if (info != nullptr && touches_data(*info)) bring_in(*storage);
    });
  }
}

// PyTorch swallows what a callback throws, so errors are kept for the end of the step.
template <typename Body>
void guarded(Body body) {
  try {
    body();
  } catch (...) {
    if (Step* step = Step::active()) step->keep_error(std::current_exception());
  }
}

std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& frame) {
  if (Step* step = Step::active()) {
    guarded([&] {
      ThreadState& state = thread_state();
      if (state.tracker.enter(frame) != Frame::kOutermost) return;
      if (joined_step() == step->number()) {
        step->on_operator(frame, *state.tracker.current());
      } else {
        state.abroad = step->on_foreign_operator(frame);
      }
    });
  }
  if (Store::get().absent() > 0 || held_on.load(std::memory_order_relaxed)) {
    guarded([&] { bring_in_arguments(frame); });
  }
  return nullptr;
}

void on_end(const at::RecordFunction& frame, at::ObserverContext* /*context*/) {
  Step* step = Step::active();
  if (step == nullptr) return;
  guarded([&] {
    ThreadState& state = thread_state();
    const Frame place = state.tracker.leave(frame);
    if (place == Frame::kNested && with_results.load(std::memory_order_relaxed) && joined_step() == step->number()) {
      step->on_nested_end(frame);
    }
    if (place != Frame::kOutermost) return;
    if (std::exchange(state.abroad, false)) {
      step->on_foreign_operator_end();
    } else {
      step->on_operator_end(frame);
    }
  });
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
  const std::lock_guard<std::recursive_mutex> locked(store.lock);
  store.set_listener(&refresh_guard);
  const Step* step = Step::active();
  const bool wanted = step != nullptr || store.absent() > 0 || held_on.load();
  const bool on = handle != at::INVALID_CALLBACK_HANDLE;
  const bool results = step != nullptr && step->program().needs_results();
  if (on && (!wanted || (results && !with_results.load()))) unsubscribe();
  if (wanted && handle == at::INVALID_CALLBACK_HANDLE) subscribe(results);
}

void forget_frames() { ++session; }

void hold_guard(bool hold) {
  held_on.store(hold);
  refresh_guard();
}

bool guard_is_on() {
  const std::lock_guard<std::recursive_mutex> locked(Store::get().lock);
  return handle != at::INVALID_CALLBACK_HANDLE;
}

}  // namespace bayplan::swap

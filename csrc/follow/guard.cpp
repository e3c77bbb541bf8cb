#include "follow/guard.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <iterator>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "follow/threads.h"
#include "profiler/operators.h"
#include "profiler/storages.h"
#include "step/step.h"
#include "storage/reading.h"
#include "storage/store.h"

namespace bayplan::swap {
namespace {

at::CallbackHandle handle = at::INVALID_CALLBACK_HANDLE;       // under the store's lock
at::CallbackHandle idle_handle = at::INVALID_CALLBACK_HANDLE;  // likewise
std::atomic<bool> with_results{false};
std::atomic<bool> held_on{false};
std::atomic<uint64_t> epoch{0};  // a new one forgets what the threads believe to be in
std::atomic<int> computing{0};   // threads in a counted operator on the session's device

using StoreLock = std::unique_lock<std::recursive_mutex>;

struct ThreadState {
  uint64_t epoch = 0;
  FrameTracker tracker = {};
  bool abroad = false;  // in an operator on the step's device that is not the step's
  int compiled = 0;     // depth of regions of torch.compile
};

// What a thread holds until its frames end, whatever starts or stops meanwhile: PyTorch tells the end of each frame
// whose begin it told.
struct Hold {
  struct Mark {
    const at::RecordFunction* frame;
    size_t pins;  // how many were there before it
  };
  Pins pins = {};
  std::vector<Mark> marks = {};  // by open frame with pins
  // The counted operator that the thread is in, and the same once it counts as computing.
  const at::RecordFunction* outermost = nullptr;
  const at::RecordFunction* computing = nullptr;
  // Of the latest frame: where its pins begin, and whether it has an argument on another device, the host excepted.
  size_t first = 0;
  bool elsewhere = false;
  // Frames that work on another stream than the compute stream, and what those inside the first of them have made.
  struct Elsewhere {
    const at::RecordFunction* frame;
    TouchPtr touch;
    bool unseen;  // the frame will not tell its results
  };
  std::vector<Elsewhere> elsewheres = {};
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> made = {};
};

thread_local Hold own;

ThreadState& thread_state() {
  thread_local ThreadState state;
  const uint64_t now = epoch.load(std::memory_order_relaxed);
  if (state.epoch != now) state = ThreadState{now};
  return state;
}

// Counted operators touch data. Of the others only those that resize or re-point a storage do, and `record_stream`.
bool touches_data(const OperatorInfo& info) {
  return info.counted || std::find(info.writes.begin(), info.writes.end(), true) != info.writes.end() ||
         info.name == "aten::record_stream" || info.name == "aten::is_set_to";
}

void bring_in(c10::StorageImpl& storage) {
  Store& store = Store::get();
  try {
    Step* step = Step::active();
    if (step != nullptr) return step->demand(storage);
    if (Session* session = Session::active()) return session->demand(storage);
    store.ensure_in(storage, Users::kAnyStream);
  } catch (const std::exception& error) {  // the operator will find the storage out, and say why
    const std::string reason = std::string(error.what()).substr(0, std::string(error.what()).find('\n'));
    forbid_reading(storage,
                   "this tensor's storage is swapped out to the host and could not be brought back: " + reason);
    throw;
  }
}

// Most operators meet nothing that is out, so what kind of operator it is, is asked last.
void bring_in_if_out(c10::StorageImpl& storage, const at::RecordFunction& frame) {
  if (Store::entry_of(storage) == nullptr) return;
  const OperatorInfo* info = find_operator(frame);
  if (info != nullptr && touches_data(*info)) bring_in(storage);
}

void bring_in_arguments(const at::RecordFunction& frame) {
  for (const c10::IValue& value : frame.inputs()) {
    for_each_tensor(value, [&](const at::Tensor& tensor) {
      if (!tensor.unsafeGetTensorImpl()->has_storage()) return;
      c10::StorageImpl* storage = tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
      if (storage != nullptr) bring_in_if_out(*storage, frame);
    });
  }
}

// PyTorch swallows what a callback throws, so errors are kept for the end of the step.
template <typename Body>
void guarded(Body body) {
  try {
    body();
  } catch (...) {
    if (Step* step = Step::active()) {
      step->keep_error(std::current_exception());
    } else if (Session* session = Session::active()) {
      session->keep_error(std::current_exception());
    }
  }
}

void follow_step(Step& step, ThreadState& state, const at::RecordFunction& frame) {
  if (state.tracker.enter(frame) != Frame::kOutermost) return;
  if (joined_step() == step.number()) {
    step.on_operator(frame, *state.tracker.current());
  } else {
    state.abroad = step.on_foreign_operator(frame);
  }
}

// Notes the storages among the arguments; whether there were any on the device.
bool pin_arguments(const Session& session, const at::RecordFunction& frame) {
  own.first = own.pins.size();
  own.elsewhere = false;
  for (const c10::IValue& value : frame.inputs()) {
    for_each_tensor(value, [&](const at::Tensor& tensor) {
      const c10::Storage* storage = storage_on(session.device(), tensor);
      if (storage != nullptr) {
        own.pins.push_back(storage->unsafeGetStorageImpl());
      } else {
        own.elsewhere = own.elsewhere || !tensor.is_cpu();
      }
    });
  }
  if (own.pins.size() == own.first) return false;
  own.marks.push_back({&frame, own.first});
  return true;
}

void unpin_arguments(const at::RecordFunction& frame) {
  const auto is_of = [&](const Hold::Mark& mark) { return mark.frame == &frame; };
  const auto mark = std::find_if(own.marks.rbegin(), own.marks.rend(), is_of);
  if (mark == own.marks.rend()) return;
  own.pins.resize(mark->pins);
  own.marks.erase(std::next(mark).base(), own.marks.end());
}

void start_computing() {
  if (own.computing != nullptr) return;
  own.computing = own.outermost;
  computing.fetch_add(1, std::memory_order_relaxed);
}

// Before anything that may wait for the store.
void let_go(const at::RecordFunction& frame) {
  unpin_arguments(frame);
  if (own.outermost == &frame) own.outermost = nullptr;
  if (own.computing != &frame) return;
  own.computing = nullptr;
  computing.fetch_sub(1, std::memory_order_relaxed);
}

// Whether the thread may go on as it began: not if a session was started, stopped or paused while it waited.
bool lock_in_time(StoreLock& held, const ThreadState& state) {
  held.lock();
  return state.epoch == epoch.load(std::memory_order_relaxed);
}

// Holds the store from the begin of a counted operator until its arguments are there and it counts as computing: who
// waits for the store is in no operator yet, so that a thread which holds it need not wait for him. An operator counts
// from its first frame with an argument on the device: those of the CPU may take long. False if it came too late for
// this session.
bool follow_session(Session& session, ThreadState& state, const at::RecordFunction& frame, StoreLock& held) {
  const bool touches = pin_arguments(session, frame);
  const Frame place = state.tracker.enter(frame);
  if (place == Frame::kTransparent) state.compiled += is_compiled_region(frame.name()) ? 1 : 0;
  if (own.computing != nullptr || place == Frame::kTransparent) return true;
  if (own.outermost == nullptr) own.outermost = &frame;
  if (place == Frame::kNested) return !touches || lock_in_time(held, state);
  const bool followed = session.owns_thread();
  if (!touches && !followed) return true;
  if (!lock_in_time(held, state)) return false;
  if (followed) {
    session.on_operator(frame, *state.tracker.current());
  } else {
    session.on_foreign_operator(frame);
  }
  return true;
}

// The arguments that were pinned need no second look through the frame's inputs.
void bring_in_pinned(const at::RecordFunction& frame) {
  if (own.elsewhere) return bring_in_arguments(frame);
  for (size_t place = own.first; place < own.pins.size(); ++place) bring_in_if_out(*own.pins[place], frame);
}

Session* watching_session() {
  Session* session = Step::active() == nullptr ? Session::active() : nullptr;
  return session != nullptr && session->watching() ? session : nullptr;
}

bool tells_of_streams(const at::RecordFunction& frame) { return std::strcmp(frame.name(), "aten::record_stream") == 0; }

// Whether the frame works with nothing but what the operators around it were given or have made, on their stream.
bool within_elsewhere(const Session& session) {
  if (own.elsewheres.empty() || own.elsewheres.back().touch->stream() != current_stream(session.device())) return false;
  const auto known = own.pins.begin() + static_cast<std::ptrdiff_t>(own.first);
  return std::all_of(known, own.pins.end(), [&](c10::StorageImpl* storage) {
    const auto is_it = [storage](const auto& weak) { return weak._unsafe_get_target() == storage; };
    return std::find(own.pins.begin(), known, storage) != known || std::any_of(own.made.begin(), own.made.end(), is_it);
  });
}

bool differentiable(const at::RecordFunction& frame) {
  bool found = false;
  if (!at::GradMode::is_enabled()) return found;
  for (const c10::IValue& value : frame.inputs()) {
    for_each_tensor(value, [&](const at::Tensor& tensor) { found = found || tensor.requires_grad(); });
  }
  return found;
}

// An operator on another stream than the compute stream: it waits for what was brought back, and what it uses leaves
// behind it. A thread that computes already holds up whoever has the store and waits for it, so it asks for the store
// only where the frame has something of its own.
void follow_elsewhere(Session& session, const ThreadState& state, const at::RecordFunction& frame) {
  const bool touches = own.pins.size() > own.first;
  if (!touches && own.outermost != &frame) return;
  if (touches && tells_of_streams(frame)) session.on_record_stream(frame);
  if (!session.is_elsewhere() || within_elsewhere(session)) return;
  const OperatorInfo* info = find_operator(frame);
  if (info == nullptr || (!touches_data(*info) && state.tracker.current() == nullptr)) return;
  const bool unseen = session.meets_elsewhere();
  own.elsewheres.push_back({&frame, session.on_elsewhere(own.pins, own.first, differentiable(frame)), unseen});
}

void note_results(const at::RecordFunction& frame) {
  for (const c10::IValue& value : frame.outputs()) {
    for_each_tensor(value, [&](const at::Tensor& tensor) {
      if (tensor.unsafeGetTensorImpl()->has_storage()) own.made.push_back(tensor.storage().getWeakStorageImpl());
    });
  }
}

// The frame's kernels are queued. Answers what it did elsewhere, for when the thread has let go of it.
std::optional<Hold::Elsewhere> end_elsewhere(const at::RecordFunction& frame) {
  if (own.elsewheres.empty()) return std::nullopt;
  note_results(frame);
  if (own.elsewheres.back().frame != &frame) return std::nullopt;
  Hold::Elsewhere ended = std::move(own.elsewheres.back());
  own.elsewheres.pop_back();
  ended.touch->end_operator();
  return ended;
}

void tell_elsewhere(const Hold::Elsewhere& ended) {
  if (Session* session = watching_session()) session->on_elsewhere_end(*ended.touch, own.made);
  if (own.elsewheres.empty()) own.made.clear();
  if (ended.unseen) record_on(ended.touch->stream())->synchronize();
}

void end_frame(Session& session, ThreadState& state, const at::RecordFunction& frame) {
  const Frame place = state.tracker.leave(frame);
  if (place == Frame::kTransparent && state.compiled > 0) state.compiled -= is_compiled_region(frame.name()) ? 1 : 0;
  if (place == Frame::kTransparent) return;
  const bool results = with_results.load(std::memory_order_relaxed) && session.sights_results();
  if (place == Frame::kNested) {
    if (results && session.owns_thread()) session.on_nested_end(frame);
    return;
  }
  if (session.owns_thread()) session.on_operator_end(frame);
}

// Whether what is out has to be looked for among the arguments.
bool anything_out() { return Store::get().absent() > 0 || held_on.load(std::memory_order_relaxed); }

// Whether the frame was followed: else there is another session by now, or none.
bool start_frame(Session& session, const at::RecordFunction& frame) {
  StoreLock held(Store::get().lock, std::defer_lock);
  bool followed = true;
  guarded([&] { followed = follow_session(session, thread_state(), frame, held); });
  if (!followed) {
    let_go(frame);
    return false;
  }
  if (anything_out()) guarded([&] { bring_in_pinned(frame); });
  guarded([&] { follow_elsewhere(session, thread_state(), frame); });
  if (held.owns_lock() && !own.pins.empty()) start_computing();
  return true;
}

std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& frame) {
  while (Session* session = watching_session()) {
    if (start_frame(*session, frame)) return nullptr;
  }
  Step* step = Step::active();
  if (step != nullptr) guarded([&] { follow_step(*step, thread_state(), frame); });
  if (anything_out()) guarded([&] { bring_in_arguments(frame); });
  return nullptr;
}

void end_step_frame(Step& step, ThreadState& state, const at::RecordFunction& frame) {
  const Frame place = state.tracker.leave(frame);
  if (place == Frame::kNested && with_results.load(std::memory_order_relaxed) && joined_step() == step.number()) {
    step.on_nested_end(frame);
  }
  if (place != Frame::kOutermost) return;
  if (std::exchange(state.abroad, false)) {
    step.on_foreign_operator_end();
  } else {
    step.on_operator_end(frame);
  }
}

void on_end(const at::RecordFunction& frame, at::ObserverContext* /*context*/) {
  const std::optional<Hold::Elsewhere> ended = end_elsewhere(frame);
  let_go(frame);
  if (ended.has_value()) guarded([&] { tell_elsewhere(*ended); });
  if (Step* step = Step::active()) {
    guarded([&] { end_step_frame(*step, thread_state(), frame); });
  } else if (Session* session = Session::active(); session != nullptr && session->watching()) {
    guarded([&] { end_frame(*session, thread_state(), frame); });
  }
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
  const Session* session = Session::active();
  const bool watched = session != nullptr && session->watching();
  const bool wanted = step != nullptr || watched || store.absent() > 0 || held_on.load();
  const bool on = handle != at::INVALID_CALLBACK_HANDLE;
  const bool results = step != nullptr || (watched && session->needs_results());
  const bool other = results ? !with_results.load() : with_results.load() && step == nullptr;
  if (on && (!wanted || other)) unsubscribe();
  if (wanted && handle == at::INVALID_CALLBACK_HANDLE) subscribe(results);
}

void forget_frames() { ++epoch; }

void forget_other_threads() { computing = own.computing != nullptr ? 1 : 0; }

const Pins& pinned() { return own.pins; }

bool others_compute() { return computing.load(std::memory_order_relaxed) > (own.computing != nullptr ? 1 : 0); }

bool in_compiled_code() { return thread_state().compiled > 0; }

void hold_guard(bool hold) {
  held_on.store(hold);
  refresh_guard();
}

void hold_idle_observer(bool hold) {
  const std::lock_guard<std::recursive_mutex> locked(Store::get().lock);
  if (idle_handle != at::INVALID_CALLBACK_HANDLE) at::removeCallback(idle_handle);
  idle_handle = at::INVALID_CALLBACK_HANDLE;
  if (!hold) return;
  const auto start = [](const at::RecordFunction&) -> std::unique_ptr<at::ObserverContext> { return nullptr; };
  const auto end = [](const at::RecordFunction&, at::ObserverContext*) {};
  idle_handle = at::addGlobalCallback(
      at::RecordFunctionCallback(start, end).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
}

bool guard_is_on() {
  const std::lock_guard<std::recursive_mutex> locked(Store::get().lock);
  return handle != at::INVALID_CALLBACK_HANDLE;
}

}  // namespace bayplan::swap

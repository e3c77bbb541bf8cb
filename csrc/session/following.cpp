// How a session follows the operators of a training loop.
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/graph_task.h>

#include <chrono>
#include <cstring>
#include <utility>

#include "follow/demand.h"
#include "follow/guard.h"
#include "follow/relief.h"
#include "profiler/storages.h"
#include "session/session.h"

namespace bayplan::swap {
namespace {

constexpr auto kAfterWaitingInVain = std::chrono::seconds(10);  // nobody is waited for: they may stay for long

bool in_backward() { return torch::autograd::get_current_graph_task_id() != -1; }

// Whether the thread may go on as it began: not if a session was started, stopped or paused while it waited.
bool lock_in_time(std::unique_lock<StoreMutex>& held, const ThreadPlace& thread) {
  let_others_go_first(thread.device);
  held.lock();
  return thread.is_current();
}

bool tells_of_streams(const at::RecordFunction& frame) { return std::strcmp(frame.name(), "aten::record_stream") == 0; }

bool differentiable(const at::RecordFunction& frame) {
  bool found = false;
  if (!at::GradMode::is_enabled()) return found;
  for (const c10::IValue& value : frame.inputs()) {
    for_each_tensor(value, [&](const at::Tensor& tensor) { found = found || tensor.requires_grad(); });
  }
  return found;
}

}  // namespace

// A step that raised is over when the iteration is, on whichever thread it was.
void Session::set_optimizer(bool runs) { optimizing(device_) = runs ? epoch_ : 0; }

// An optimizer's step may lie inside the backward pass, on a thread of autograd's.
Phase Session::phase() const {
  if (optimizing(device_) == epoch_) return Phase::kOptimizer;
  if (in_backward()) return Phase::kBackward;
  return at::GradMode::is_enabled() ? Phase::kForward : Phase::kWithoutGradients;
}

Anchor Session::next_anchor(uint32_t id) {
  const Phase phase = state_.running.phase;
  auto& counted = counted_[static_cast<size_t>(phase)];
  if (counted.size() <= id) counted.resize(id + 1, 0);
  return Anchor{phase, id, counted[id]++, static_cast<uint32_t>(state_.iteration.operators.size())};
}

// ---- frames ---------------------------------------------------------------------------------------------------------

bool Session::begin_frame(const at::RecordFunction& frame) {
  OpenFrames& own = OpenFrames::of_thread(device_);
  ThreadPlace& thread = thread_place(device_);
  if (own.outermost() == nullptr && (grounds_.lacks() || grounds_.doubted())) guarded(this, [&] { mend_arena(own); });
  if (own.outermost() == nullptr && (behind(device_) || begins())) guarded(this, [&] { catch_up(device_, begins()); });
  if (!thread.is_current()) return false;
  if (grounds_.due()) guarded(this, [&] { renew_arena_if_due(own); });
  StoreLock held(store_.lock, std::defer_lock);
  bool followed = true;
  guarded(this, [&] { followed = follow(frame, thread, own, held); });
  if (!followed) {
    own.let_go(frame);
    return false;
  }
  if (looks_ahead()) guarded(this, [&] { make_room_for_arguments(frame, own); });
  if (held_up(frame, held) && !goes_on_alone(frame, thread, own, held)) return false;
  if (anything_out()) guarded(this, [&] { bring_in_pinned(frame, own); });
  if (sightings_.recording() && owns_thread() && reads_on_host(frame, device_)) read_seen_ = true;
  guarded(this, [&] { follow_elsewhere(frame, own); });
  if (looks_ahead()) guarded(this, [&] { make_room_for_operator(frame, own); });
  if (held_up(frame, held) && !goes_on_alone(frame, thread, own, held)) return false;
  if (held.owns_lock() && !own.pins().empty()) own.start_computing();
  return true;
}

// Holds the store from the begin of a counted operator until its arguments are there and it counts as computing: who
// waits for the store is in no operator yet, so that a thread which holds it need not wait for him. An operator counts
// from its first frame with an argument on the device: those of the CPU may take long. False if it came too late for
// this session.
bool Session::follow(const at::RecordFunction& frame, ThreadPlace& thread, OpenFrames& own, StoreLock& held) {
  const bool touches = own.pin_arguments(frame);
  const Frame place = thread.tracker.enter(frame);
  if (place == Frame::kTransparent) thread.compiled += is_compiled_region(frame.name()) ? 1 : 0;
  if (own.computes() || place == Frame::kTransparent) return true;
  own.set_outermost(frame);
  if (place == Frame::kNested) return !touches || lock_in_time(held, thread);
  const bool ours = owns_thread();
  if (!touches && !ours) return true;
  if (!lock_in_time(held, thread)) return false;
  if (ours) {
    on_operator(frame, *thread.tracker.current());
  } else {
    on_foreign_operator(frame);
  }
  return true;
}

// Whether other threads' operators kept from leaving what this one needs the room of, which it is about to begin.
bool Session::held_up(const at::RecordFunction& frame, const StoreLock& held) {
  return held.owns_lock() && state_.running.frame == &frame && std::exchange(state_.held_up, false) &&
         std::chrono::steady_clock::now() >= waits_again_;
}

// Waits for them, some seconds at most, without the store, for which they may wait. Its arguments may leave meanwhile:
// another stream waits anew for what comes back. False if the session has stopped or paused: it may be gone.
bool Session::goes_on_alone(const at::RecordFunction& frame, const ThreadPlace& thread, OpenFrames& own,
                            StoreLock& held) {
  const std::optional<OpenFrames::Elsewhere> begun = own.end_elsewhere(frame);
  held.unlock();
  held = lock_alone(thread.device);
  if (!thread.is_current()) {
    if (active(thread.device) == this && state_.running.frame == &frame) state_.running.frame = nullptr;
    own.let_go(frame);
    return false;
  }
  if (others_compute(device_)) waits_again_ = std::chrono::steady_clock::now() + kAfterWaitingInVain;
  guarded(this, [&] { make_room_for_arguments(frame, own); });
  guarded(this, [&] { bring_in_pinned(frame, own); });
  guarded(this, [&] {
    if (!begun.has_value()) return;
    const TouchPtr touch = streams_.begin_elsewhere(own.pins(), own.first(), differentiable(frame));
    own.begin_elsewhere({&frame, touch, begun->unseen});
  });
  guarded(this, [&] { make_room_for_operator(frame, own); });
  state_.held_up = false;
  return true;
}

// An operator on another stream than the compute stream: it waits for what was brought back, and what it uses leaves
// behind it. A thread that computes already holds up whoever has the store and waits for it, so it asks for the store
// only where the frame has something of its own.
void Session::follow_elsewhere(const at::RecordFunction& frame, OpenFrames& own) {
  const bool touches = own.pins().size() > own.first();
  if (!touches && own.outermost() != &frame) return;
  if (touches && tells_of_streams(frame)) {
    const Lock held(store_.lock);
    streams_.record_stream(frame);
  }
  if (!compute_.is_elsewhere() || own.is_within_elsewhere(current_stream(device_))) return;
  const OperatorInfo* info = find_operator(frame);
  if (info == nullptr || (!touches_data(*info) && thread_place(device_).tracker.current() == nullptr)) return;
  const bool with_graph = differentiable(frame);
  const Lock held(store_.lock);
  const bool unseen = meets_elsewhere();
  own.begin_elsewhere({&frame, streams_.begin_elsewhere(own.pins(), own.first(), with_graph), unseen});
}

// Whether operators that began before this are not going to tell what they make.
bool Session::meets_elsewhere() {
  const bool seen = streams_.seen_elsewhere();
  if (seen && !state_.arena.there() && !grounds_.lent()) return false;
  const bool unseen = !needs_results();
  grounds_.dissolve(OpenFrames::of_thread(device_).pins());
  streams_.see_elsewhere();
  renew_guard();
  return unseen;
}

void Session::end_elsewhere(Touch& touch, const std::vector<WeakStorage>& made) {
  const Lock held(store_.lock);
  streams_.end_elsewhere(touch, made);
}

void Session::end_frame(const at::RecordFunction& frame) {
  ThreadPlace& thread = thread_place(device_);
  const Frame place = thread.tracker.leave(frame);
  if (place == Frame::kTransparent) {
    if (thread.compiled > 0) thread.compiled -= is_compiled_region(frame.name()) ? 1 : 0;
    return;
  }
  if (place == Frame::kNested) {
    if (guard_has_results() && sights_results() && owns_thread()) on_nested_end(frame);
    return;
  }
  if (owns_thread()) on_operator_end(frame);
}

// ---- counted operators ----------------------------------------------------------------------------------------------

// The caller holds the store.
void Session::on_operator(const at::RecordFunction& frame, const OperatorInfo& info) {
  ++state_.now;
  streams_.note_pass(in_backward());
  RunningOperator& running = state_.running;
  if (running.frame != nullptr) return;  // two threads work at once: what they use is not told apart
  running.phase = phase();
  const Anchor anchor = next_anchor(info.id);
  Iteration& iteration = state_.iteration;
  const bool after_backward = !iteration.phases.empty() && iteration.phases.back() == Phase::kBackward;
  if (after_backward && running.phase == Phase::kForward) iteration.pass_bytes = 0;
  iteration.operators.push_back(info.id);
  iteration.phases.push_back(running.phase);
  iteration.backward = iteration.backward || running.phase == Phase::kBackward;
  running = {&frame, &info, running.phase, state_.now};
  running.place = PlaceNeeds::key_of(static_cast<uint64_t>(anchor.phase), anchor.id, anchor.ordinal);
  asked_in_operator_ = false;
  if (transfers_.has_policy()) transfers_.act_before(anchor, frame);
  sightings_.see_arguments(frame);
}

void Session::on_operator_end(const at::RecordFunction& frame) {
  const Lock held(store_.lock);
  if (&frame != state_.running.frame) return;
  learn_needs();
  learn_retry();
  state_.running.frame = nullptr;
  Timeline* timeline = state_.iteration.clock.timeline.get();
  if (timeline != nullptr && !compute_.is_elsewhere()) timeline->end_operator(*compute_);
  if (sights_results()) sightings_.see_results(frame);
  if (read_seen_.exchange(false)) {
    state_.iteration.reads.push_back(static_cast<uint32_t>(state_.iteration.operators.size() - 1));
  }
  transfers_.act_after();
}

void Session::on_nested_end(const at::RecordFunction& frame) {
  const Lock held(store_.lock);
  if (state_.running.frame != nullptr) sightings_.see_results(frame);
}

// Another thread's operators, a data loader's for instance: what they touch stays.
void Session::on_foreign_operator(const at::RecordFunction& frame) {
  for (const c10::IValue& value : frame.inputs()) {
    for_each_tensor(value, [&](const at::Tensor& tensor) {
      const c10::Storage* storage = storage_on(device_, tensor);
      if (storage == nullptr || storage->nbytes() < state_.options.least_bytes) return;
      state_.tracker.at(*storage, state_.now).barred = true;
    });
  }
}

}  // namespace bayplan::swap

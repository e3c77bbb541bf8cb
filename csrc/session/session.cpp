#include "session/session.h"

#include <ATen/core/grad_mode.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <pthread.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <atomic>
#include <limits>

#include "follow/guard.h"
#include "profiler/storages.h"
#include "step/step.h"

namespace bayplan::swap {
namespace {

using Lock = std::lock_guard<std::recursive_mutex>;

std::atomic<Session*> active_session{nullptr};
std::vector<Session*> started;         // the last one is active; under the store's lock
uint64_t epochs = 0;                   // of all sessions' iterations; likewise
thread_local uint64_t optimizing = 0;  // the one in which the thread has begun an optimizer's step

EventPtr timing_event_on(c10::Stream stream) {
  auto event = std::make_shared<c10::Event>(stream.device_type(), c10::EventFlag::BACKEND_DEFAULT);
  event->record(stream);
  return event;
}

Features& features_in(Phase phase, Tracked& tracked) {
  return phase == Phase::kWithoutGradients ? tracked.without_gradients : tracked.features;
}

// A forked process (a data loader's worker) has the device's memory no more, and no other threads: it follows nothing,
// and whoever held the store at the fork does not exist in it.
void survive_forks() {
  static const int registered = pthread_atfork([] { Store::get().lock.lock(); }, [] { Store::get().lock.unlock(); },
                                               [] {
                                                 new (&Store::get().lock) std::recursive_mutex();
                                                 active_session = nullptr;
                                                 started.clear();
                                                 Step::forget_active();
                                                 forget_other_threads();
                                               });
  TORCH_CHECK(registered == 0, "pthread_atfork failed with code ", registered);
}

bool fills(const OperatorInfo& info) { return info.name == "aten::mul.out" || info.name == "aten::copy_"; }

bool in_backward() { return torch::autograd::get_current_graph_task_id() != -1; }

}  // namespace

Session::Session(c10::Device device, SessionOptions options)
    : device_(device), options_(options), store_(Store::get()) {}

Session::~Session() { stop(); }

Session* Session::active() { return active_session.load(std::memory_order_acquire); }

// ---- beginning and end ----------------------------------------------------------------------------------------------

void Session::start() {
  survive_forks();
  const Lock held(store_.lock);
  TORCH_CHECK(Step::active() == nullptr, "a swap schedule is being executed: end that step before a session starts");
  TORCH_CHECK(std::find(started.begin(), started.end(), this) == started.end(), "this session runs already");
  thread_ = std::this_thread::get_id();
  epoch_ = ++epochs;
  set_compute(current_stream(device_));
  frame_ = nullptr;
  leaving_now_.clear();
  iteration_.clock.begin = timing_event_on(*compute_);
  store_before_ = store_.counts();
  store_.host().reset_peak();
  c10::getDeviceAllocator(device_.type())->resetPeakStats(device_.index());
  started.push_back(this);
  active_session.store(this, std::memory_order_release);
  forget_frames();
  refresh_guard();
  try {  // what any stream has been given to do before is done: nobody knows with which storages
    c10::impl::VirtualGuardImpl(device_.type()).synchronizeDevice(device_.index());
  } catch (...) {
    stop();
    throw;
  }
}

void Session::stop() {
  const Lock held(store_.lock);
  const auto own = std::find(started.begin(), started.end(), this);
  if (own == started.end()) return;
  started.erase(own);
  active_session.store(started.empty() ? nullptr : started.back(), std::memory_order_release);
  forget_frames();
  leaving_.clear();
  coming_.clear();
  for (const auto& [address, tracked] : tracker_) {
    const auto storage = tracked.storage.lock();
    if (storage == nullptr || Store::entry_of(*storage) == nullptr) continue;
    try {
      store_.ensure_in(*storage, Users::kAnyStream);
    } catch (const c10::OutOfMemoryError&) {  // the guard stays on and tries again when it is used
    } catch (...) {                           // the others come back all the same; a destructor may be running
      keep_error(std::current_exception());
    }
  }
  settle_copies();
  tracker_.clear();
  open_touches_.clear();
  refresh_guard();
}

void Session::set_watching(bool on) {
  const Lock held(store_.lock);
  watching_ = on;
  if (!on) settle_copies();
  forget_frames();
  refresh_guard();
}

void Session::add_resident(const std::vector<at::Tensor>& tensors) {
  const Lock held(store_.lock);
  for (const at::Tensor& tensor : tensors) {
    const c10::Storage* storage = storage_on(device_, tensor);
    if (storage == nullptr || storage->nbytes() < options_.least_bytes) continue;
    tracker_.at(*storage, now_).resident = true;
  }
}

void Session::set_policy(std::optional<Policy> policy) {
  const Lock held(store_.lock);
  finder_ = policy.has_value() ? std::make_unique<Finder>(std::move(*policy), options_.matching) : nullptr;
  leaving_now_.clear();  // they number the old policy's targets
  counts_.matched = 0;
  forget_flights();
  refresh_guard();
}

void Session::record_sightings(bool on) {
  const Lock held(store_.lock);
  recording_ = on;
  refresh_guard();
}

void Session::set_ranks(const std::vector<uint32_t>& by_frequency) {
  const Lock held(store_.lock);
  ranks_.set(by_frequency);
}

void Session::forget_flights() { flights_.assign(finder_ == nullptr ? 0 : finder_->policy().targets.size(), Flight{}); }

Iteration Session::end_iteration() {
  const Lock held(store_.lock);
  release_leaving(std::numeric_limits<uint64_t>::max());
  coming_.clear();
  Iteration done = std::exchange(iteration_, Iteration());
  thread_ = std::this_thread::get_id();
  close_touches();
  set_compute(current_stream(device_));
  done.clock.end = iteration_.clock.begin = timing_event_on(*compute_);
  done.peak_bytes = static_cast<uint64_t>(allocated().peak);
  done.host_peak_bytes = store_.host().stats().peak_held_bytes;
  done.counts = std::exchange(counts_, SessionCounts());
  done.counts.store = store_.counts() - store_before_;
  store_before_ = store_.counts();
  done.unmatched = flights_.size() - done.counts.matched;
  iteration_.operators.reserve(done.operators.size());
  iteration_.phases.reserve(done.operators.size());
  ++iterations_;
  epoch_ = ++epochs;
  frame_ = nullptr;
  leaving_now_.clear();
  seen_.clear();
  for (auto& counted : counted_) std::fill(counted.begin(), counted.end(), 0);
  if (finder_ != nullptr) finder_->restart();
  forget_flights();
  tracker_.prune();
  recording_ = false;
  ever_short_ = ever_short_ || done.counts.passive + done.counts.failed > 0;
  short_ = ever_short_;
  refresh_guard();
  return done;
}

void Session::raise_error() {
  if (error_ != nullptr) std::rethrow_exception(std::exchange(error_, nullptr));
}

void Session::keep_error(std::exception_ptr error) {
  const Lock held(store_.lock);
  if (error_ == nullptr) error_ = std::move(error);
}

// ---- following the operators ----------------------------------------------------------------------------------------

// The thread that trains, and the autograd threads that work for somebody: a data loader's is neither.
bool Session::owns_thread() const { return std::this_thread::get_id() == thread_ || in_backward(); }

// A step that raised is over when the iteration is, on whichever thread it was.
void Session::set_optimizer(bool runs) { optimizing = runs ? epoch_ : 0; }

// An optimizer's step may lie inside the backward pass, on a thread of autograd's.
Phase Session::phase() const {
  if (optimizing == epoch_) return Phase::kOptimizer;
  if (in_backward()) return Phase::kBackward;
  return at::GradMode::is_enabled() ? Phase::kForward : Phase::kWithoutGradients;
}

Anchor Session::next_anchor(uint32_t id) {
  auto& counted = counted_[static_cast<size_t>(phase_)];
  if (counted.size() <= id) counted.resize(id + 1, 0);
  return Anchor{phase_, id, counted[id]++, static_cast<uint32_t>(iteration_.operators.size())};
}

void Session::on_operator(const at::RecordFunction& frame, const OperatorInfo& info) {
  ++now_;
  const bool was_in_pass = std::exchange(in_pass_, in_backward());
  if (in_pass_ && !was_in_pass) pass_began_ = now_;
  if (frame_ != nullptr) return;  // two threads work at once: what they use is not told apart
  phase_ = phase();
  const Anchor anchor = next_anchor(info.id);
  iteration_.operators.push_back(info.id);
  iteration_.phases.push_back(phase_);
  iteration_.backward = iteration_.backward || phase_ == Phase::kBackward;
  frame_ = &frame;
  began_ = now_;
  info_ = &info;
  position_ = 0;
  if (finder_ != nullptr) act_before(anchor);
  sight_arguments(frame, info);
}

void Session::on_operator_end(const at::RecordFunction& frame) {
  const Lock held(store_.lock);
  if (&frame != frame_) return;
  frame_ = nullptr;
  if (iteration_.clock.timeline != nullptr && !is_elsewhere()) iteration_.clock.timeline->end_operator(*compute_);
  if (sights_results()) {
    for (const c10::IValue& value : frame.outputs()) {
      for_each_tensor(value, [&](const at::Tensor& tensor) { sight_result(tensor); });
    }
  }
  for (const Found& found : std::exchange(leaving_now_, {})) swap_out(found);
}

void Session::on_nested_end(const at::RecordFunction& frame) {
  const Lock held(store_.lock);
  if (frame_ == nullptr) return;
  for (const c10::IValue& value : frame.outputs()) {
    for_each_tensor(value, [&](const at::Tensor& tensor) { sight_result(tensor); });
  }
}

// ---- sighting storages ----------------------------------------------------------------------------------------------

Tracked& Session::refreshed(const c10::Storage& storage) {
  Tracked& tracked = tracker_.at(storage, now_);
  if (std::exchange(tracked.iteration, iterations_) != iterations_) {
    tracked.features = tracked.without_gradients = Features();
  }
  return tracked;
}

void Session::sight_arguments(const at::RecordFunction& frame, const OperatorInfo& info) {
  size_t argument = 0;
  for (const c10::IValue& value : frame.inputs()) {
    const bool written = argument < info.writes.size() && info.writes[argument];
    ++argument;
    for_each_tensor(value, [&](const at::Tensor& tensor) {
      const c10::Storage* storage = storage_on(device_, tensor);
      if (storage == nullptr || storage->nbytes() < options_.least_bytes) return;
      Tracked& tracked = refreshed(*storage);
      tracked.barred = tracked.barred || info.communicates;
      keep_gradient(tracked);
      if (std::exchange(tracked.last_use, now_) == now_) return;
      if (phase_ == Phase::kForward && !tracked.resident) iteration_.forward_bytes += storage->nbytes();
      Features& features = features_in(phase_, tracked);
      // DDP's buckets: first used when the backward pass fills them. Its reducer compares their addresses in C++.
      if (written && phase_ == Phase::kBackward && features.uses == 0 && !tracked.resident && fills(info)) {
        tracked.barred = true;
      }
      features.use(ranks_, info.id);
      if (finder_ == nullptr && !recording_) return;
      note(*storage, features.key(phase_, storage->nbytes(), tensor.scalar_type()), false);
    });
  }
}

// A storage that no operator has used yet, such as a mask that dropout keeps. What an operator allocates and frees
// again is seen too: it dies at once.
void Session::sight_result(const at::Tensor& tensor) {
  const c10::Storage* storage = storage_on(device_, tensor);
  if (storage == nullptr || storage->nbytes() < options_.least_bytes) return;
  Tracked& tracked = refreshed(*storage);
  tracked.barred = tracked.barred || info_->communicates;
  keep_gradient(tracked);
  if (is_elsewhere()) touch(tracked, current_stream(device_));
  if (std::exchange(tracked.last_use, now_) == now_ || features_in(phase_, tracked).uses > 0) return;
  Features made;
  made.tags = ranks_.bit(info_->id);
  made.calls = ranks_.number(info_->id);
  note(*storage, made.key(phase_, storage->nbytes(), tensor.scalar_type(), position_), true);
}

void Session::note(const c10::Storage& storage, uint64_t key, bool result) {
  const auto op = static_cast<uint32_t>(iteration_.operators.size() - 1);
  const uint32_t position = position_++;
  if (recording_) {
    const auto address = reinterpret_cast<uintptr_t>(storage.unsafeGetStorageImpl());
    iteration_.sightings.push_back({op, position, address, key, seen_[key]++, result});
  }
  if (finder_ == nullptr) return;
  const int64_t target = finder_->target(key, op, position);
  if (target < 0) return;
  ++counts_.matched;
  leaving_now_.emplace_back(static_cast<uint32_t>(target),
                            c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(storage.unsafeGetStorageImpl()));
}

// ---- what the policy says -------------------------------------------------------------------------------------------

void Session::act_before(const Anchor& anchor) {
  for (const uint32_t number : finder_->events(anchor)) {
    const Event& event = finder_->policy().events[number];
    event.kind == ActionKind::kRelease ? release(event.targets) : swap_in(event.targets);
  }
  if (!options_.guard) arrive(anchor.op);
}

// The target's storage if it is out because this iteration's swap-out of the target sent it out, and has got there.
c10::intrusive_ptr<c10::StorageImpl> Session::flying(uint32_t target, Place place) const {
  const Flight& flight = flights_[target];
  auto storage = flight.storage.has_value() ? flight.storage->lock() : c10::intrusive_ptr<c10::StorageImpl>();
  const Entry* entry = storage == nullptr ? nullptr : Store::entry_of(*storage);
  const bool own = entry != nullptr && entry->copied_out == flight.copied_out && entry->place == place;
  return own ? std::move(storage) : c10::intrusive_ptr<c10::StorageImpl>();
}

void Session::release_block(c10::StorageImpl& storage, Entry& entry) {
  const EngineWork work = measured();
  entry.copied_out->block(entry.home);
  store_.release(storage);
}

void Session::release(const std::vector<uint32_t>& targets) {
  for (const uint32_t target : targets) {
    const auto storage = flying(target, Place::kLeaving);
    if (storage == nullptr) {
      if (options_.record_stream != RecordStream::kTorch) ++counts_.missed_events;
      continue;
    }
    if (options_.record_stream == RecordStream::kPrinted) release_block(*storage, *Store::entry_of(*storage));
    for (Leaving& leaving : leaving_) leaving.due = leaving.due || leaving.copied_out == flights_[target].copied_out;
  }
  release_due();
}

// Another thread may drop the last reference at any time, so whoever looks keeps one.
c10::intrusive_ptr<c10::StorageImpl> Session::leaver(const Leaving& leaving) const {
  auto storage = leaving.storage.lock();
  const Entry* entry = storage == nullptr ? nullptr : Store::entry_of(*storage);
  const bool still = entry != nullptr && entry->copied_out == leaving.copied_out && entry->place == Place::kLeaving;
  return still ? std::move(storage) : c10::intrusive_ptr<c10::StorageImpl>();
}

// The policy's operator times are means, so its release may come before the copy's end. Then the block waits until
// somebody needs it (`release_leaving`) or a later release finds the copy done: the compute stream never waits for
// memory that nobody asks for. Copies end in their order.
void Session::release_due() {
  while (!leaving_.empty()) {
    const Leaving& first = leaving_.front();
    if (const auto storage = leaver(first)) {
      if (!first.due || !first.copied_out->query()) return;
      release_block(*storage, *Store::entry_of(*storage));
    }
    leaving_.pop_front();
  }
}

// All blocks are allocated before the first copy is queued: then one wait for the compute stream's "now" covers them.
void Session::swap_in(const std::vector<uint32_t>& targets) {
  std::vector<std::pair<c10::intrusive_ptr<c10::StorageImpl>, c10::DataPtr>> arrivals;
  for (const uint32_t target : targets) {
    if (const auto kept = flying(target, Place::kLeaving)) {  // nobody needed its block meanwhile
      bring_back(*kept);
      ++counts_.kept;
      continue;
    }
    auto storage = flying(target, Place::kAway);
    if (storage == nullptr) {
      ++counts_.missed_events;
      continue;
    }
    polite_ = true;
    try {
      c10::DataPtr block = store_.allocate(*Store::entry_of(*storage));
      arrivals.emplace_back(std::move(storage), std::move(block));
    } catch (const c10::OutOfMemoryError&) {
      ++counts_.postponed;  // it is fetched when it is used
    } catch (...) {
      polite_ = false;
      throw;
    }
    polite_ = false;
  }
  if (arrivals.empty()) return;
  const EngineWork work = measured();
  const c10::Stream lane = lanes_of(device_).in;
  record_on(*compute_)->block(lane);
  for (auto& [storage, block] : arrivals) {
    Store::entry_of(*storage)->copied_out->block(lane);
    store_.swap_in(*storage, std::move(block));
    coming_.emplace_back(storage);
  }
}

void Session::arrive(uint32_t op) {
  for (const uint32_t target : finder_->arrivals(op)) {
    const auto storage = flying(target, Place::kComing);
    if (storage == nullptr) continue;
    const EngineWork work = measured();
    EventPtr copied = Store::entry_of(*storage)->copied_in;
    copied->block(*compute_);
    store_.install(*storage);
    came_back(*storage, std::move(copied));
    ++counts_.in_time;
  }
}

void Session::swap_out(const Found& found) {
  c10::StorageImpl& storage = *found.second;
  const auto tracked = tracker_.find(&storage);
  if (tracked == nullptr || stays(*tracked) || in_compiled_code() || others_compute() ||
      Store::why_it_stays(storage) != nullptr) {
    ++counts_.refused;
    return;
  }
  const EngineWork work = measured();
  record_on(*compute_)->block(lanes_of(device_).out);
  leave_behind_touches(storage);
  try {
    store_.swap_out(storage, *compute_);
  } catch (const HostMemoryShort&) {
    keep_error(std::current_exception());
    ++counts_.refused;
    return;
  }
  flights_[found.first] = {c10::weak_intrusive_ptr<c10::StorageImpl>(found.second),
                           Store::entry_of(storage)->copied_out};
  if (options_.record_stream == RecordStream::kTorch) {
    store_.leave_to_allocator(storage);
  } else {
    leaving_.push_back({c10::weak_intrusive_ptr<c10::StorageImpl>(found.second), flights_[found.first].copied_out});
  }
}

bool Session::in_flight(const Entry& entry) const {
  return std::any_of(flights_.begin(), flights_.end(),
                     [&entry](const Flight& flight) { return flight.copied_out == entry.copied_out; });
}

c10::CachingAllocator::Stat Session::allocated() const {
  const auto stats = c10::getDeviceAllocator(device_.type())->getDeviceStats(device_.index());
  return stats.allocated_bytes[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)];
}

}  // namespace bayplan::swap

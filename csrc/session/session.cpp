#include "session/session.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <new>
#include <utility>

#include "follow/guard.h"
#include "profiler/storages.h"

namespace bayplan::swap {
namespace {

ByDevice<std::vector<Session*>> started;  // the last one is active; under the store's lock
std::atomic<uint64_t> epochs{0};          // of all sessions' iterations

void lock_stores() {
  Store::for_each([](Store& store) { store.lock.lock(); });
}

void unlock_stores() {
  Store::for_each([](Store& store) { store.lock.unlock(); });
}

void begin_in_child() {
  Store::for_each([](Store& store) { new (&store.lock) StoreMutex(); });
  StoreMutex::forget_held();
  for (size_t place = 0; place < kPlaces; ++place) started.at_place(place).clear();
  Follower::forget_all();
  forget_other_threads();
}

// A forked process (a data loader's worker) has the devices' memory no more, and no other threads: it follows nothing,
// and whoever held a store at the fork does not exist in it.
void survive_forks() {
  static const int registered = pthread_atfork(&lock_stores, &unlock_stores, &begin_in_child);
  TORCH_CHECK(registered == 0, "pthread_atfork failed with code ", registered);
}

}  // namespace

Session::Session(c10::Device device, SessionOptions options)
    : Follower(Kind::kSession, device),
      state_(*this, options, compute_),
      streams_(state_),
      transfers_(state_, streams_),
      sightings_(state_, streams_, transfers_),
      passive_(state_, streams_, transfers_),
      small_(state_, streams_, passive_),
      grounds_(state_, streams_, transfers_, passive_) {
  state_.make_room = [this](uint64_t bytes, bool others_leave) {
    const Pins& pins = OpenFrames::of_thread(device_).pins();
    if (!knows_places()) return true;
    if (SmallRequests::is_small(bytes)) return small_.make_room({{bytes, 0}}, pins, others_leave);
    if (grounds_.lent()) return others_leave;
    return !state_.arena.there() || passive_.make_room(bytes, pins, others_leave);
  };
}

Session::~Session() { stop(); }

// ---- beginning and end ----------------------------------------------------------------------------------------------

void Session::start() {
  survive_forks();
  const c10::impl::VirtualGuardImpl devices(device_.type());
  note_wait(Awaited::kDevice);
  devices.synchronizeDevice(device_.index());  // without the store, as what others have yet to queue is waited for here
  const Lock held(store_.lock);
  const Follower* other = active(device_);
  TORCH_CHECK(other == nullptr || other->kind() != Kind::kStep,
              "a swap schedule is being executed: end that step before a "
              "session starts");
  std::vector<Session*>& own = started[device_];
  TORCH_CHECK(std::find(own.begin(), own.end(), this) == own.end(), "this session runs already");
  begin_iteration();
  grounds_.ask();
  begin_counting();
  retries_ = static_cast<uint64_t>(memory().num_alloc_retries);
  set_active(this);
  own.push_back(this);
  forget_frames(device_);  // after the others know of it: who has waited for the store meanwhile begins again
  renew_guard();
  note_wait(Awaited::kDevice);
  try {  // what any stream has been given to do before is done: nobody knows with which storages
    devices.synchronizeDevice(device_.index());
  } catch (...) {
    stop();
    throw;
  }
}

LeftOut Session::stop() {
  const Lock held(store_.lock);
  std::vector<Session*>& all = started[device_];
  const auto own = std::find(all.begin(), all.end(), this);
  LeftOut left;
  if (own == all.end()) return left;
  all.erase(own);
  set_active(all.empty() ? nullptr : all.back());
  protect(false);
  forget_frames(device_);
  transfers_.forget();
  grounds_.forget();
  store_.host().keep_nothing_ready();
  for (const auto& [address, tracked] : state_.tracker) {
    const auto storage = tracked.storage.lock();
    if (storage == nullptr || Store::entry_of(*storage) == nullptr) continue;
    try {
      store_.ensure_in(*storage, Users::kAnyStream);
    } catch (const c10::OutOfMemoryError&) {  // the guard stays on and tries again when it is used
    } catch (...) {                           // the others come back all the same; a destructor may be running
      keep_error(std::current_exception());
    }
    if (Store::entry_of(*storage) == nullptr) continue;
    left.bytes += storage->nbytes();
    ++left.storages;
  }
  streams_.settle_copies();
  state_.tracker.clear();
  streams_.forget_touches();
  renew_guard();
  return left;
}

void Session::set_watching(bool on) {
  const Lock held(store_.lock);
  watching_ = on;
  if (!on) streams_.settle_copies();
  forget_frames(device_);
  renew_guard();
}

void Session::add_resident(const std::vector<at::Tensor>& tensors) {
  const Lock held(store_.lock);
  for (const at::Tensor& tensor : tensors) {
    const c10::Storage* storage = storage_on(device_, tensor);
    if (storage == nullptr || storage->nbytes() < state_.options.least_bytes) continue;
    state_.tracker.at(*storage, state_.now).resident = true;
  }
}

void Session::set_policy(std::optional<Policy> policy) {
  const Lock held(store_.lock);
  transfers_.set_policy(std::move(policy));
  renew_guard();
}

void Session::record_sightings(bool on) {
  const Lock held(store_.lock);
  sightings_.record(on);
  renew_guard();
}

void Session::set_ranks(const std::vector<uint32_t>& by_frequency) {
  const Lock held(store_.lock);
  sightings_.set_ranks(by_frequency);
}

void Session::measure_swapping() {
  const Lock held(store_.lock);
  state_.iteration.clock.timeline = std::make_shared<Timeline>(*compute_);
}

// ---- iterations -----------------------------------------------------------------------------------------------------

// On the calling thread and its stream.
void Session::begin_iteration() {
  follow_from(std::this_thread::get_id());
  epoch_ = ++epochs;
  streams_.move_to(current_stream(device_));
  state_.running.frame = nullptr;
  transfers_.forget_sighted();
  state_.iteration.clock.begin = recorded_event(*compute_, /*timed=*/true);
}

Iteration Session::end_iteration() {
  const Lock held(store_.lock);
  transfers_.release_leaving();
  Iteration done = std::exchange(state_.iteration, Iteration());
  streams_.close_touches();
  begin_iteration();
  done.clock.end = state_.iteration.clock.begin;
  const auto stats = memory();
  done.peak_bytes = std::max(done.peak_bytes, static_cast<uint64_t>(stats.allocated_bytes[kAllPools].peak));
  const auto reserved = static_cast<uint64_t>(stats.reserved_bytes[kAllPools].peak);
  done.reserved_peak_bytes = std::max(done.reserved_peak_bytes, reserved);
  done.host_peak_bytes = store_.host().stats().peak_held_bytes;
  done.unmatched = transfers_.unmatched();
  done.counts = std::exchange(state_.counts, SessionCounts());
  done.counts.store = take_counts();
  const auto retries = static_cast<uint64_t>(stats.num_alloc_retries);
  done.counts.retries = retries - std::min(retries, std::exchange(retries_, retries));
  state_.iteration.operators.reserve(done.operators.size());
  state_.iteration.phases.reserve(done.operators.size());
  ++state_.iterations;
  for (auto& counted : counted_) std::fill(counted.begin(), counted.end(), 0);
  sightings_.restart();
  transfers_.restart();
  state_.tracker.prune();
  ever_short_ = ever_short_ || done.counts.passive + done.counts.failed > 0;
  short_ = ever_short_;
  grounds_.begin_iteration();
  small_.begin_iteration();
  protect(ever_short_ || is_shared());
  renew_guard();
  return done;
}

}  // namespace bayplan::swap

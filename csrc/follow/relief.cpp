#include "follow/relief.h"

#include <algorithm>
#include <atomic>
#include <mutex>

#include "follow/follower.h"
#include "follow/frames.h"
#include "storage/waits.h"

namespace bayplan::swap {
namespace {

constexpr unsigned kMost = 4096;   // storages for one request
constexpr unsigned kAhead = 2;     // requests for which there is room when an operator begins
constexpr unsigned kAttempts = 3;  // times that the others may begin anew

thread_local bool answering = false;
thread_local bool catching_up = false;

ByDevice<std::atomic<bool>> is_behind;
ByDevice<std::atomic<uint64_t>> lacked;  // bytes: the most that was refused since somebody has caught up
std::atomic<uint64_t> under_lock{0}, refused{0}, unlocked{0}, waits{0}, caught_up{0};

// Who catches up has waited already, and holds the store now, which the others may wait for.
bool others_are_done(c10::Device device) {
  if (!others_compute(device)) return true;
  if (WithoutWaits::active() || catching_up || serves_another()) return false;
  ++waits;
  return wait_for_others(device);
}

// While one exists, the follower knows of a request.
class AskedFor {
 public:
  explicit AskedFor(Follower& follower) : follower_(follower) { follower_.begin_request(); }
  ~AskedFor() { follower_.end_request(); }
  AskedFor(const AskedFor&) = delete;
  AskedFor& operator=(const AskedFor&) = delete;

 private:
  Follower& follower_;
};

// What lacks for so many requests.
uint64_t missing_for(Follower& follower, unsigned requests) {
  const uint64_t missing = follower.shortage(requests);
  return missing > 0 ? missing : follower.shortage_without_cache(requests);
}

// Until nothing lacks or nothing more may leave; whether anything was freed. The caller holds the store.
bool answer_all(Follower& follower, unsigned requests) {
  const uint64_t first = follower.shortage(requests);
  bool freed = first > 0 && answer_pressure(0, first, 0);
  for (unsigned attempt = 1; attempt < kMost; ++attempt) {
    const uint64_t missing = missing_for(follower, requests);
    if (missing == 0 || !answer_pressure(0, missing, attempt)) break;
    freed = true;
  }
  return freed;
}

// The caller holds the store and has told the follower of the request.
bool answer_one(Follower& follower) {
  ++under_lock;
  const HostPool& host = Store::of(follower.device()).host();
  const uint64_t unserved = host.stats().unserved;
  const bool freed = answer_all(follower, 1);
  const uint64_t missing = missing_for(follower, 1);
  if (missing == 0) return freed;
  ++refused;
  if (host.stats().unserved == unserved) return freed;
  ++unlocked;
  std::atomic<uint64_t>& most = lacked[follower.device()];
  most.store(std::max(most.load(), missing));
  return freed;
}

// While one exists, its thread has caught up with the others.
struct CatchingUp {
  CatchingUp() { catching_up = true; }
  ~CatchingUp() { catching_up = false; }
};

// The caller holds the store.
void make_up(Follower& follower) {
  const CatchingUp now;
  ++caught_up;
  if (missing_for(follower, kAhead) > 0) answer_all(follower, kAhead);
  const c10::Device device = follower.device();
  Store::of(device).host().keep_ready(follower.largest_bytes(),
                                      std::max(lacked[device].exchange(0), follower.leaving_bytes()));
}

}  // namespace

bool answer_pressure(size_t /*bytes*/, size_t missing, unsigned attempt) {
  Follower* follower = Follower::active_on_current();
  if (follower == nullptr || answering) return false;
  answering = true;
  bool freed = false;
  try {
    const c10::Device device = follower->device();
    freed = (attempt == 0 || others_are_done(device)) &&
            follower->relieve(missing, attempt, OpenFrames::of_thread(device).pins());
  } catch (...) {
    follower->keep_error(std::current_exception());
  }
  answering = false;
  return freed;
}

// Another thread may hold the store and wait for the allocator: never wait for the store here. Where the request after
// this one may find no memory, room is made for it before the next operator.
bool answer_under_lock() {
  Follower* follower = Follower::active_on_current();
  if (follower == nullptr) return false;
  const c10::Device device = follower->device();
  const WithoutWaits now;
  const std::unique_lock<StoreMutex> held(Store::of(device).lock, std::try_to_lock);
  if (!held.owns_lock()) {
    is_behind[device].store(true);
    ++under_lock;
    ++refused;
    return false;
  }
  const AskedFor request(*follower);
  if (follower->shortage(kAhead) == 0) return false;
  is_behind[device].store(true);
  return missing_for(*follower, 1) > 0 && answer_one(*follower);
}

std::unique_lock<StoreMutex> lock_alone(c10::Device device) {
  std::unique_lock<StoreMutex> held(Store::of(device).lock, std::defer_lock);
  if (others_compute(device)) ++waits;
  const GoingFirst first(device);
  for (unsigned attempt = 0; attempt < kAttempts && wait_for_others(device); ++attempt) {
    held.lock();
    if (!others_compute(device)) return held;
    held.unlock();
  }
  held.lock();
  return held;
}

bool behind(c10::Device device) {
  return is_behind[device].load(std::memory_order_relaxed) || Store::of(device).host().has_put_off();
}

void catch_up(c10::Device device, bool look) {
  Follower* follower = Follower::active(device);
  if (serves_another()) return;  // the next operator comes after this one
  Store& store = Store::of(device);
  const bool all = is_behind[device].exchange(false) || look;
  HostPool& host = store.host();
  if (follower == nullptr || (!all && !host.has_put_off())) return;
  const std::unique_lock<StoreMutex> held = all ? lock_alone(device) : std::unique_lock<StoreMutex>(store.lock);
  if (Follower::active(device) != follower) return;
  if (all) make_up(*follower);
  host.catch_up(follower->device().type());
}

ReliefCounts relief_counts() {
  return {under_lock.load(), refused.load(), unlocked.load(), waits.load(), caught_up.load()};
}

}  // namespace bayplan::swap

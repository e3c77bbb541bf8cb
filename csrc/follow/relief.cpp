#include "follow/relief.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <atomic>
#include <mutex>

#include "follow/follower.h"
#include "follow/frames.h"

namespace bayplan::swap {
namespace {

constexpr unsigned kMost = 4096;  // storages for one request
constexpr unsigned kAhead = 2;    // requests for which there is room when an operator begins

thread_local bool answering = false;
thread_local int at_once = 0;

std::atomic<bool> is_behind{false};
std::atomic<uint64_t> under_lock{0}, refused{0}, waits{0}, caught_up{0};

bool others_are_done() {
  if (!others_compute()) return true;
  if (AtOnce::active()) return false;
  ++waits;
  return wait_for_others();
}

// Allocators ask with their device as the thread's current one: what another device lacks is not to be had from this.
bool asks_for(c10::Device device) { return c10::impl::VirtualGuardImpl(device.type()).getDevice() == device; }

// While one exists, the follower knows of a request.
class AskedFor {
 public:
  explicit AskedFor(Follower* follower) : follower_(follower) {
    if (follower_ != nullptr) follower_->begin_request();
  }
  ~AskedFor() {
    if (follower_ != nullptr) follower_->end_request();
  }
  AskedFor(const AskedFor&) = delete;
  AskedFor& operator=(const AskedFor&) = delete;

 private:
  Follower* follower_;
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

}  // namespace

AtOnce::AtOnce(bool page_locks) {
  ++at_once;
  if (!page_locks) without_growth_.emplace();
}
AtOnce::~AtOnce() { --at_once; }
bool AtOnce::active() { return at_once > 0; }

bool answer_pressure(size_t /*bytes*/, size_t missing, unsigned attempt) {
  Follower* follower = Follower::active();
  if (follower == nullptr || answering) return false;
  answering = true;
  bool freed = false;
  try {
    freed = (attempt == 0 || others_are_done()) && follower->relieve(missing, attempt, OpenFrames::of_thread().pins());
  } catch (...) {
    follower->keep_error(std::current_exception());
  }
  answering = false;
  return freed;
}

// Another thread may hold the store and wait for the allocator: never wait for the store here. Where the request after
// this one may find no memory, room is made for it before the next operator.
bool answer_under_lock() {
  Follower* follower = Follower::active();
  if (follower == nullptr || !asks_for(follower->device())) return false;
  const std::unique_lock<std::recursive_mutex> held(Store::get().lock, std::try_to_lock);
  const AskedFor request(held.owns_lock() ? follower : nullptr);
  if (held.owns_lock() && follower->shortage(kAhead) == 0) return false;
  is_behind.store(true);
  if (held.owns_lock() && missing_for(*follower, 1) == 0) return false;
  ++under_lock;
  bool freed = false;
  for (const bool page_locks : {false, true}) {  // a wait of some ms is better than an error
    const AtOnce now(page_locks);
    freed = (held.owns_lock() && answer_all(*follower, 1)) || freed;
    if (!held.owns_lock() || !follower->must_answer() || missing_for(*follower, 1) == 0) break;
  }
  if (!held.owns_lock() || missing_for(*follower, 1) > 0) ++refused;
  return freed;
}

bool behind() { return is_behind.load(std::memory_order_relaxed); }

// Whoever waits for other threads holds nothing that they may wait for.
void catch_up(bool look) {
  Follower* follower = Follower::active();
  if ((!is_behind.exchange(false) && !look) || follower == nullptr) return;
  if (others_compute()) {
    ++waits;
    wait_for_others();
  }
  const std::lock_guard<std::recursive_mutex> held(Store::get().lock);
  if (Follower::active() != follower) return;
  ++caught_up;
  if (missing_for(*follower, kAhead) > 0) answer_all(*follower, kAhead);
  const size_t largest = follower->largest_bytes();
  Store& store = Store::get();
  if (largest > 0 && !store.host().has_room(largest)) store.host().grow_by(2 * largest, follower->device().type());
}

ReliefCounts relief_counts() { return {under_lock.load(), refused.load(), waits.load(), caught_up.load()}; }

}  // namespace bayplan::swap

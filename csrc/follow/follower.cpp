#include "follow/follower.h"

#include <utility>

#include "follow/followers.h"
#include "follow/guard.h"

namespace bayplan::swap {
namespace {

bool tells_of_short_host(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const HostMemoryShort&) {
    return true;
  } catch (...) {
    return false;
  }
}

}  // namespace

Follower::Follower(Kind kind, c10::Device device)
    : device_(device), store_(Store::of(device)), compute_(device), kind_(kind) {}

Follower* Follower::active(c10::Device device) {
  Follower* follower = Followers::get().at(place_of(device));
  return follower != nullptr && device.type() == follower->device().type() ? follower : nullptr;
}

Follower* Follower::active_on_current() {
  const Followers& all = Followers::get();
  return all.at(all.current_place());
}

void Follower::forget_all() { Followers::get().clear(); }

bool Follower::owns_thread() const { return Followers::get().owns(place_of(device_)); }

void Follower::set_active(Follower* follower) const {
  const bool step = follower != nullptr && follower->kind() == Kind::kStep;
  Followers::get().set(device_, follower, follower == nullptr ? std::thread::id() : follower->thread_, step);
}

void Follower::follow_from(std::thread::id thread) {
  const bool marked = Followers::get().mark_thread();
  if ((std::exchange(thread_, thread) != thread || marked) && is_active()) set_active(this);
}

void Follower::renew_guard() {
  wants_results_.store(needs_results(), std::memory_order_relaxed);
  refresh_guard();
}

void Follower::keep_error(std::exception_ptr error) {
  const Lock held(store_.lock);
  if (error_ == nullptr) {
    error_ = std::move(error);
    on_error();
  } else if (behind_ == nullptr && tells_of_short_host(error_) != tells_of_short_host(error)) {
    behind_ = std::move(error);
  }
}

void Follower::raise_error() {
  if (error_ != nullptr) std::rethrow_exception(std::exchange(error_, std::exchange(behind_, nullptr)));
}

void Follower::begin_counting() {
  counts_before_ = store_.counts();
  store_.host().reset_peak();
  c10::getDeviceAllocator(device_.type())->resetPeakStats(device_.index());
}

StoreCounts Follower::take_counts() {
  const StoreCounts before = std::exchange(counts_before_, store_.counts());
  return counts_before_ - before;
}

c10::CachingDeviceAllocator::DeviceStats Follower::memory() const {
  return c10::getDeviceAllocator(device_.type())->getDeviceStats(device_.index());
}

c10::CachingAllocator::Stat Follower::allocated() const { return memory().allocated_bytes[kAllPools]; }

StoragePtr out_since(StoragePtr storage, const EventPtr& copied_out, Place place) {
  const Entry* entry = storage == nullptr ? nullptr : Store::entry_of(*storage);
  const bool so = entry != nullptr && entry->copied_out == copied_out && entry->place == place;
  return so ? std::move(storage) : StoragePtr();
}

}  // namespace bayplan::swap

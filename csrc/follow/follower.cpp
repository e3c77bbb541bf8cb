#include "follow/follower.h"

#include <atomic>
#include <utility>

namespace bayplan::swap {
namespace {

std::atomic<Follower*> active_follower{nullptr};

}  // namespace

Follower::Follower(Kind kind, c10::Device device)
    : device_(device), store_(Store::get()), compute_(device), kind_(kind) {}

Follower* Follower::active() { return active_follower.load(std::memory_order_acquire); }

void Follower::set_active(Follower* follower) { active_follower.store(follower, std::memory_order_release); }

void Follower::keep_error(std::exception_ptr error) {
  const Lock held(store_.lock);
  if (error_ != nullptr) return;
  error_ = std::move(error);
  on_error();
}

void Follower::raise_error() {
  if (error_ != nullptr) std::rethrow_exception(std::exchange(error_, nullptr));
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

#include "session/grounds.h"

#include <c10/core/CachingDeviceAllocator.h>

#include <algorithm>
#include <utility>

#include "follow/frames.h"

namespace bayplan::swap {
namespace {

constexpr auto kSmall = static_cast<size_t>(c10::CachingAllocator::StatType::SMALL_POOL);
constexpr auto kLarge = static_cast<size_t>(c10::CachingAllocator::StatType::LARGE_POOL);
constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kSpare = 4 * kMiB;  // for small requests beyond the most that there were
constexpr uint64_t kUnseenShare = 16;  // of the limit, for them in the first iteration
constexpr uint64_t kWastedShare = 50;  // of the limit: less waste is none
constexpr uint64_t kLeastShare = 4;    // of what large requests have: a smaller arena is none

c10::DeviceAllocator& allocator_of(const SessionState& state) { return *c10::getDeviceAllocator(state.device.type()); }

c10::CachingDeviceAllocator::DeviceStats stats_of(const SessionState& state) {
  return allocator_of(state).getDeviceStats(state.device.index());
}

uint64_t now(const c10::CachingAllocator::StatArray& stat, size_t pool) {
  return static_cast<uint64_t>(stat[pool].current);
}

}  // namespace

// Elsewhere memory is asked for that only the driver can give.
void Grounds::renew(uint64_t limit_bytes, const Pins& pins) {
  due_ = false;
  if (segments_ == Segments::kNone || !cuts_ || in_compiled_code(state_.device) || streams_.seen_elsewhere()) return;
  const EngineWork work = state_.work();
  note_small();
  if (is_good(limit_bytes) || (state_.arena.there() && moves_ == kMoves)) return;
  empty_cache(state_.device);
  std::vector<StoragePtr> moved;
  const auto stats = stats_of(state_);
  const uint64_t wasted = now(stats.reserved_bytes, kAllPools) - now(stats.active_bytes, kAllPools);
  if (moves_ < kMoves && wasted > limit_bytes / kWastedShare) moved = send_all_away(pins);
  state_.arena = {};
  empty_cache(state_.device);
  take(to_take(limit_bytes));
  for (const StoragePtr& storage : moved) streams_.bring_back(*storage);
  allocator_of(state_).resetPeakStats(state_.device.index());
}

void Grounds::note_small() {
  small_peak_ = std::max(small_peak_, static_cast<uint64_t>(stats_of(state_).reserved_bytes[kSmall].peak));
}

uint64_t Grounds::small_peak_bytes() {
  note_small();
  return small_peak_;
}

void Grounds::look(uint64_t limit_bytes) {
  if (!state_.arena.there() || making_) return;
  const auto stats = stats_of(state_);
  crowded_ = now(stats.reserved_bytes, kAllPools) + kSpare > limit_bytes;  // this one and one more
  lost_ = now(stats.reserved_bytes, kLarge) < held_bytes_;
  if (lost_) state_.arena = {};
}

// What was there comes back when it is used; it is put in order when the next iteration begins.
void Grounds::mend(uint64_t limit_bytes, const Pins& pins) {
  if (in_compiled_code(state_.device) || streams_.seen_elsewhere()) return;
  const EngineWork work = state_.work();
  if (crowded_) more_ = 2 * std::max(more_, kSpare);
  lost_ = crowded_ = false;
  transfers_.release_leaving();
  send_all_away(pins);
  state_.arena = {};
  allocator_of(state_).emptyCache();
  note_small();
  take(to_take(limit_bytes));
  again_ = true;
}

// Nothing lies so that it divides what is free, and not much more could be had.
bool Grounds::is_good(uint64_t limit_bytes) const {
  if (!state_.arena.there()) return false;
  const Layout layout(state_.arena, state_.tracker);
  const uint64_t tolerated = limit_bytes / kWastedShare;
  return layout.free_bytes() - layout.largest_gap() <= tolerated && to_take(limit_bytes) <= tolerated;
}

// What the limit leaves, but for small requests: these get no more than half of it, as without an arena the driver is
// asked for 20 MiB at once, which there may not be.
uint64_t Grounds::to_take(uint64_t limit_bytes) const {
  const auto stats = stats_of(state_);
  const uint64_t small = now(stats.reserved_bytes, kSmall);
  const uint64_t unseen = state_.iterations == 1 ? limit_bytes / kUnseenShare : 0;
  const uint64_t expected = std::max(small, small_peak_) - small + kSpare + std::max(unseen, more_);
  const uint64_t unit = segments_ == Segments::kExpandable ? 20 * kMiB : 2 * kMiB;
  const uint64_t left = limit_bytes - std::min(limit_bytes, now(stats.reserved_bytes, kAllPools));
  return (left - std::min(expected, left / 2)) / unit * unit;
}

void Grounds::take(uint64_t bytes) {
  outside_bytes_ = now(stats_of(state_).active_bytes, kLarge);
  if (bytes == 0 || bytes < (bytes + outside_bytes_) / kLeastShare) return;
  making_ = true;
  try {
    const c10::DataPtr block = allocator_of(state_).allocate(bytes);
    const auto begin = reinterpret_cast<uintptr_t>(block.get());
    state_.arena = {begin, begin + bytes};
    held_bytes_ = now(stats_of(state_).reserved_bytes, kLarge);
  } catch (const c10::OutOfMemoryError&) {  // somebody else has the device's memory: the allocator goes its own way
  }
  making_ = false;
}

// In the order of their addresses, in which they come back.
std::vector<StoragePtr> Grounds::send_all_away(const Pins& pins) {
  ++moves_;
  std::vector<std::pair<const void*, StoragePtr>> found;
  for (const auto& [address, tracked] : state_.tracker) {
    StoragePtr storage = tracked.storage.lock();
    if (storage == nullptr || storage->nbytes() <= kMiB || !passive_.may_leave(tracked, *storage, pins)) continue;
    found.emplace_back(storage->_mutable_data_ptr_no_checks().get(), std::move(storage));
  }
  std::sort(found.begin(), found.end());
  std::vector<StoragePtr> gone;
  try {
    for (auto& [address, storage] : found) {
      streams_.leave_behind(*storage);
      state_.store.park(*storage);
      gone.push_back(std::move(storage));
    }
  } catch (const HostMemoryShort&) {  // the others stay where they are
  }
  return gone;
}

void Grounds::dissolve(const Pins& pins) {
  if (!state_.arena.there()) return;
  const EngineWork work = state_.work();
  transfers_.release_leaving();
  send_all_away(pins);
  state_.arena = {};
  empty_cache(state_.device);
}

}  // namespace bayplan::swap

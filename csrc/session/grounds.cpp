// One file: making an arena, giving it back and taking it again go by the same figures of the allocator.
#include "session/grounds.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/util/ScopeExit.h>

#include <algorithm>
#include <utility>

#include "follow/frames.h"
#include "profiler/displaced.h"

namespace bayplan::swap {
namespace {

constexpr auto kSmall = static_cast<size_t>(c10::CachingAllocator::StatType::SMALL_POOL);
constexpr auto kLarge = static_cast<size_t>(c10::CachingAllocator::StatType::LARGE_POOL);
constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kSpare = 4 * kMiB;   // for small requests beyond the most that there were
constexpr uint64_t kSpareShare = 1024;  // of the limit, where that is more,
constexpr uint64_t kGrownShare = 256;   // of the limit at most, for more of them than there ever were
constexpr uint64_t kUnseenShare = 16;   // of the limit, for them in the first iteration
constexpr uint64_t kWastedShare = 50;   // of the limit: less waste is none
constexpr uint64_t kLeastShare = 4;     // of what large requests have: a smaller arena is none
constexpr uint64_t kUnit = 2 * kMiB;    // of segments that are taken by their size,
constexpr uint64_t kOwn = 10 * kMiB;    // which are those of so much: a smaller request takes one of 20 MiB
constexpr uint64_t kPage = 20 * kMiB;   // of ranges that grow

c10::DeviceAllocator& allocator_of(const SessionState& state) { return *c10::getDeviceAllocator(state.device.type()); }

c10::CachingDeviceAllocator::DeviceStats stats_of(const SessionState& state) {
  return allocator_of(state).getDeviceStats(state.device.index());
}

uint64_t now(const c10::CachingAllocator::StatArray& stat, size_t pool) {
  return static_cast<uint64_t>(stat[pool].current);
}

}  // namespace

// Elsewhere memory is asked for that only the driver can give. Once nobody has for an iteration, there is an arena
// again, and nobody is looked out for, but for programs that ask now and then.
bool Grounds::others_ask() const {
  return streams_.lately_elsewhere() || (streams_.seen_elsewhere() && dissolved_ == kDissolved);
}

void Grounds::begin_iteration() {
  retakes_ = 0;
  const bool anew = streams_.seen_elsewhere() && !others_ask() && anew_ < kMoves;
  if (anew) {
    ++anew_;
    streams_.forget_elsewhere();
    emptied_ = true;
  }
  if (knows_small()) {
    more_ = 0;
    due_ = true;
  }
  due_ = due_ || state_.iterations <= kFirst || std::exchange(again_, false) || anew;
}

// An iteration has passed in which small requests had enough: the most that there ever were is what they need, and what
// they were left beyond that is the arena's again.
bool Grounds::knows_small() {
  if (std::exchange(more_lately_, false) || more_ == 0 || lent_since_ || known_ == kKnown) return false;
  ++known_;
  return true;
}

void Grounds::renew(uint64_t limit_bytes, const Pins& pins) {
  due_ = false;
  if (segments_ == Segments::kNone || !cuts_ || in_compiled_code(state_.device) || others_ask() || lent()) return;
  const EngineWork work = state_.work();
  if (std::exchange(emptied_, false)) empty_cache(state_.device);
  note_small();
  small_begin_ = now(stats_of(state_).active_bytes, kSmall);
  if (lacks_large_requests()) return give_up();
  if (is_good(limit_bytes) || (state_.arena.there() && moves_ == most_moves())) return;
  const bool there = state_.arena.there();
  empty_cache(state_.device);
  std::vector<StoragePtr> moved;
  const auto stats = stats_of(state_);
  const uint64_t wasted = now(stats.reserved_bytes, kAllPools) - now(stats.active_bytes, kAllPools);
  if (moves_ < most_moves() && wasted > tolerated(limit_bytes)) moved = send_all_away(pins);
  forget();
  empty_cache(state_.device);
  make_place(limit_bytes, pins);
  take(to_take(limit_bytes));
  if (there && !state_.arena.there()) {  // what may move lies in what was there
    for (StoragePtr& storage : send_all_away(pins)) moved.push_back(std::move(storage));
    empty_cache(state_.device);
    make_place(limit_bytes, pins);
    take(to_take(limit_bytes));
  }
  for (const StoragePtr& storage : moved) streams_.bring_back(*storage);
  restart_peaks();
  lent_since_ = false;
}

// What was held until here still counts for the iteration, but not what there was before the session's first operator.
void Grounds::restart_peaks() {
  if (std::exchange(begun_, true) || state_.iterations > 1) {
    const auto stats = stats_of(state_);
    Iteration& iteration = state_.iteration;
    const auto reserved = static_cast<uint64_t>(stats.reserved_bytes[kAllPools].peak);
    iteration.peak_bytes = std::max(iteration.peak_bytes, static_cast<uint64_t>(stats.allocated_bytes[kAllPools].peak));
    iteration.reserved_peak_bytes = std::max(iteration.reserved_peak_bytes, reserved);
  }
  allocator_of(state_).resetPeakStats(state_.device.index());
}

// Not while they have the arena's bytes, which they will have again.
void Grounds::note_small() {
  if (lent_since_) return;
  const auto peak = static_cast<uint64_t>(stats_of(state_).reserved_bytes[kSmall].peak);
  small_peak_ = std::max(small_peak_, peak);
  if (small_begin_.has_value()) small_growth_ = std::max(small_growth_, peak - std::min(peak, *small_begin_));
}

// As much as ever; or, once more of them stay (the optimizer's states), these and what an iteration had beside them.
// Where the iteration that made them had most in its last operators, that counts them twice: so it adds little of the
// limit.
uint64_t Grounds::small_to_come(uint64_t small, uint64_t limit_bytes) const {
  const uint64_t beside = now(stats_of(state_).active_bytes, kSmall) + small_growth_;
  const uint64_t most =
      std::max(small_peak_, std::min(beside, small_peak_ + limit_bytes / kGrownShare / kUnit * kUnit));
  return std::max(small, most) - small + std::max(kSpare, limit_bytes / kSpareShare);
}

uint64_t Grounds::small_peak_bytes() {
  note_small();
  return small_peak_;
}

void Grounds::look(uint64_t limit_bytes) {
  if (!state_.arena.there() || making_) return;
  const auto stats = stats_of(state_);
  const bool crowded = now(stats.reserved_bytes, kAllPools) + kSpare > limit_bytes;  // this one and one more
  crowded_ = crowded && (!has_served() || may_shrink(limit_bytes));
  lost_ = now(stats.reserved_bytes, kLarge) < held_bytes_;
  if (lost_) state_.arena = {};
}

void Grounds::look_for_loss() {
  doubted_ = false;
  if (!state_.arena.there() || making_) return;
  lost_ = lost_ || now(stats_of(state_).reserved_bytes, kLarge) < held_bytes_;
  if (lost_) state_.arena = {};
}

// What was there comes back when it is used; it is put in order when the next iteration begins.
void Grounds::mend(uint64_t limit_bytes, const Pins& pins) {
  if (in_compiled_code(state_.device) || others_ask()) return;
  const EngineWork work = state_.work();
  const bool stays = !crowded_ || may_shrink(limit_bytes);
  if (crowded_) more_ = 2 * std::max(more_, kSpare);
  more_lately_ = more_lately_ || crowded_;
  lost_ = crowded_ = false;
  again_ = true;
  if (!stays && !has_served()) return give_up();
  used_ = has_served();
  transfers_.release_leaving();
  send_all_away(pins);
  forget();
  allocator_of(state_).emptyCache();
  make_place(limit_bytes, pins);
  note_small();
  take(to_take(limit_bytes));
}

bool Grounds::would_hold(uint64_t bytes, uint64_t limit_bytes) const {
  const uint64_t unit = segments_ == Segments::kExpandable ? kPage : kUnit;
  const uint64_t held = (bytes + unit - 1) / unit * unit + outside_bytes_;
  return bytes > needed_bytes_ && std::max(held + kUnit, bytes + outside_bytes_ + 2 * kUnit) <= limit_bytes;
}

void Grounds::widen(uint64_t bytes, uint64_t limit_bytes, const Pins& pins) {
  needed_bytes_ = bytes;
  mend(limit_bytes, pins);
}

void Grounds::begin_anew(uint64_t bytes, bool small, uint64_t limit_bytes, const Pins& pins) {
  const uint64_t before = std::exchange(needed_bytes_, std::max(needed_bytes_, bytes));
  crowded_ = crowded_ || small;
  mend(limit_bytes, pins);
  if (state_.arena.there() || needed_bytes_ == before) return;
  needed_bytes_ = before;  // there is no such arena
  take(to_take(limit_bytes));
}

// Tried are the sizes of requests.
c10::DataPtr Grounds::keep_before(uint64_t bytes, const std::vector<OperatorNeeds::Way>& ways) {
  const Layout layout(state_.arena, state_.tracker);
  if (!state_.arena.there() || layout.free_bytes() < state_.arena.bytes()) return {};  // something could not leave
  const uintptr_t begin = state_.arena.begin, end = state_.arena.end;
  const auto serves = [&](uint64_t kept) {
    std::vector<Range> free{{begin + kept + bytes, end}};
    if (kept > 0) free.push_back({begin, begin + kept});
    const auto is_large = [](uint64_t asked) { return asked > kMiB; };
    return std::all_of(ways.begin(), ways.end(), [&](const auto& way) { return would_serve(way, free, is_large); });
  };
  if (begin + bytes > end || serves(0)) return {};
  for (const OperatorNeeds::Way& way : ways) {
    for (const Requests::Event& event : way) {
      if (event.bytes <= kMiB || begin + event.bytes + bytes > end || !serves(event.bytes)) continue;
      const Unrecorded own;
      making_ = true;
      const auto over = c10::make_scope_exit([this] { making_ = false; });
      try {
        return allocator_of(state_).allocate(event.bytes);
      } catch (const c10::OutOfMemoryError&) {
        return {};
      }
    }
  }
  return {};
}

// One page beside the arena cannot be had; where tensors are large, two may be what one of them lacks.
uint64_t Grounds::tolerated(uint64_t limit_bytes) const {
  const uint64_t share = limit_bytes / kWastedShare;
  return segments_ == Segments::kExpandable ? std::min(share, 2 * kPage) : share;
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
  const uint64_t expected = small_to_come(small, limit_bytes) + std::max(unseen, more_);
  return fitting(limit_bytes - std::min(limit_bytes, now(stats.reserved_bytes, kAllPools)), expected);
}

// None is smaller than the least segment that can be had by its size, if that leaves small requests anything.
uint64_t Grounds::fitting(uint64_t left, uint64_t for_small) const {
  const bool pages = segments_ == Segments::kExpandable;
  const uint64_t unit = pages ? kPage : kUnit;
  const uint64_t least = std::max(pages ? kPage : kOwn, (needed_bytes_ + unit - 1) / unit * unit);
  const uint64_t bytes = (left - std::min(for_small, left / 2)) / unit * unit;
  if (bytes >= least) return bytes;
  const bool have = now(stats_of(state_).reserved_bytes, kSmall) >= kUnit;
  return left >= least + (have ? 0 : kUnit) ? least : 0;
}

// Else small requests have to do with what they have, and others of them leave.
bool Grounds::may_shrink(uint64_t limit_bytes) const {
  const uint64_t small = now(stats_of(state_).reserved_bytes, kSmall);
  const uint64_t expected = small_to_come(small, limit_bytes) + 2 * std::max(more_, kSpare);
  const uint64_t left = limit_bytes - std::min(limit_bytes, small + outside_bytes_);
  const uint64_t bytes = fitting(left, expected);
  return bytes > 0 && bytes + kUnit <= state_.arena.bytes();
}

// Whether anybody has had a block of the arena.
bool Grounds::has_served() const { return used_ || stats_of(state_).allocation[kLarge].allocated != large_requests_; }

// In all of an iteration.
bool Grounds::lacks_large_requests() {
  const int64_t served = stats_of(state_).allocation[kLarge].allocated;
  only_small_ = !has_served() && state_.iterations > 1;
  large_requests_ = served;
  used_ = false;
  return only_small_;
}

void Grounds::give_up() {
  only_small_ = true;
  if (!state_.arena.there()) return;
  state_.arena = {};
  empty_cache(state_.device);
  restart_peaks();
}

void Grounds::take(uint64_t bytes) {
  outside_bytes_ = now(stats_of(state_).active_bytes, kLarge);
  if (bytes == 0 || bytes < (bytes + outside_bytes_) / kLeastShare) return;
  making_ = true;
  const Unrecorded own;  // else an iteration that begins with it would seem to need as much
  try {
    const c10::DataPtr block = allocator_of(state_).allocate(bytes);
    const auto begin = reinterpret_cast<uintptr_t>(block.get());
    state_.arena = {begin, begin + bytes};
    taken_bytes_ = bytes;
    const auto stats = stats_of(state_);
    held_bytes_ = now(stats.reserved_bytes, kLarge);
    large_requests_ = stats.allocation[kLarge].allocated;
  } catch (const c10::OutOfMemoryError&) {  // somebody else has the device's memory: the allocator goes its own way
  }
  making_ = false;
}

// Small storages stand in the way of the least arena: they leave, and come back when they are used.
void Grounds::make_place(uint64_t limit_bytes, const Pins& pins) {
  if (to_take(limit_bytes) > 0) return;
  send_away(pins, /*small=*/true);
  empty_cache(state_.device);
}

std::vector<StoragePtr> Grounds::send_all_away(const Pins& pins) {
  ++moves_;
  return send_away(pins, /*small=*/false);
}

// In the order of their addresses, in which they come back.
std::vector<StoragePtr> Grounds::send_away(const Pins& pins, bool small) {
  std::vector<std::pair<const void*, StoragePtr>> found;
  for (const auto& [address, tracked] : state_.tracker) {
    StoragePtr storage = tracked.storage.lock();
    if (storage == nullptr || (storage->nbytes() <= kMiB) != small || !passive_.may_leave(tracked, *storage, pins))
      continue;
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

bool Grounds::lend(const Pins& pins) {
  if (!state_.arena.there() || not_lent_ == state_.iterations) return false;
  const EngineWork work = state_.work();
  note_small();
  ever_served_ = ever_served_ || has_served();
  if (!ever_served_) {
    give_up();
    return true;
  }
  transfers_.release_leaving();
  while (transfers_.recall(pins)) {
  }
  send_away(pins, /*small=*/false);
  empty_cache(state_.device);
  note_lent();
  if (!lent()) not_lent_ = state_.iterations;
  return lent();
}

void Grounds::note_lent() {
  if (held_bytes_ == 0 || only_small() || others_ask()) return;
  if (now(stats_of(state_).reserved_bytes, kLarge) >= held_bytes_) return;
  used_ = has_served();
  state_.arena = {};
  lost_ = doubted_ = false;
  lent_ = lent_since_ = true;
}

// A smaller one beside what small requests have, if it is worth it: else they leave again, and come back the next time.
void Grounds::take_back(uint64_t limit_bytes, const Pins& pins) {
  const EngineWork work = state_.work();
  const auto to_be_had = [&] {
    const uint64_t held = now(stats_of(state_).reserved_bytes, kAllPools);
    return std::min(taken_bytes_, fitting(limit_bytes - std::min(limit_bytes, held), kUnit));
  };
  lent_ = false;
  used_ = has_served();
  transfers_.release_leaving();
  empty_cache(state_.device);
  if (to_be_had() < taken_bytes_ / 2) {
    send_away(pins, /*small=*/true);
    empty_cache(state_.device);
  }
  take(to_be_had());
  lent_ = !state_.arena.there();
}

uint64_t Grounds::large_in_use() const {
  const uint64_t in_use = now(stats_of(state_).active_bytes, kLarge);
  return in_use - std::min(in_use, outside_bytes_);
}

void Grounds::dissolve(const Pins& pins) {
  lent_ = false;
  if (!state_.arena.there()) return;
  const EngineWork work = state_.work();
  ++dissolved_;
  transfers_.release_leaving();
  send_all_away(pins);
  state_.arena = {};
  empty_cache(state_.device);
}

}  // namespace bayplan::swap

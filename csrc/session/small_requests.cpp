#include "session/small_requests.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/util/ScopeExit.h>

#include <algorithm>
#include <limits>
#include <tuple>

#include "follow/frames.h"
#include "storage/store.h"

namespace bayplan::swap {
namespace {

constexpr auto kSmallPool = static_cast<size_t>(c10::CachingAllocator::StatType::SMALL_POOL);
constexpr uint64_t kSegmentBytes = SmallRequests::kSegmentBytes;
constexpr uint64_t kLeastCost = uint64_t{64} << 10;  // in bytes: less takes as long to leave and to come back
constexpr uint64_t kFragments = 2;  // so many times as much as is asked for holds it, in whatever pieces
uintptr_t segment_at(uintptr_t address) { return address / kSegmentBytes * kSegmentBytes; }
uintptr_t segment_of(const Span& span) { return segment_at(span.begin); }

}  // namespace

bool SmallRequests::is_small(uint64_t bytes) { return block_of(bytes) <= kMostBytes; }

void SmallRequests::begin(std::optional<uint64_t> bytes, bool other) {
  end();
  if (!limit_.has_value()) return;
  certain_ = bytes.has_value() && is_small(*bytes);
  if (certain_) {
    asked_ = block_of(*bytes);
  } else if (left() < kSegmentBytes && (other || in_use() > in_use_with_room_)) {
    asked_ = kMostBytes;
  }
}

void SmallRequests::end() {
  asked_ = 0;
  freed_.clear();
  served_ = certain_ = false;
}

uint64_t SmallRequests::shortage(unsigned requests) const {
  if (asked_ == 0 || left() >= requests * kSegmentBytes || (served_ && requests == 1)) return 0;
  return asked_;
}

bool SmallRequests::relieve(const Pins& pins) {
  bool released = send_some_away(asked_, pins);
  while (!released && passive_.recall(pins)) released = send_some_away(asked_, pins);
  served_ = std::any_of(freed_.begin(), freed_.end(), [&](const Range& range) { return range.bytes() >= asked_; });
  if (!released && !certain_) asked_ = 0;  // so it has to be a large one
  if (released && !certain_) in_use_with_room_ = in_use();
  return released;
}

bool SmallRequests::make_room(const Way& way, const Pins& pins, bool others_leave) {
  uint64_t largest = 0, all = 0;
  for (const Requests::Event& event : way) {
    if (event.bytes == 0 || !is_small(event.bytes)) continue;
    largest = std::max(largest, block_of(event.bytes));
    all += block_of(event.bytes);
  }
  if (!limit_.has_value() || kFragments * all <= left()) return true;
  const auto over = c10::make_scope_exit([this] { freed_.clear(); });  // the host may be short
  bool served = serves(way, blocks(pins));
  while (!served && others_leave && !passive_.is_held_up() && send_some_away(largest, pins))
    served = serves(way, blocks(pins));
  return served;
}

// Nobody knows what it will ask for: at most so many bytes, in requests as large as small ones have been.
bool SmallRequests::make_room_for_unknown(uint64_t bytes, const Pins& pins) {
  const uint64_t each = largest_block();
  if (each == 0) return true;
  Way way;
  for (uint64_t asked = 0; asked < bytes; asked += each) way.push_back({each, way.size()});
  return make_room(way, pins, /*others_leave=*/true);
}

// Of segments without storages that are looked at nothing is known.
bool SmallRequests::serves(const Way& way, const std::vector<Span>& spans) const {
  std::vector<Range> free;
  for (size_t place = 0; place < spans.size(); ++place) {
    const uintptr_t segment = segment_of(spans[place]), end = segment + kSegmentBytes;
    const bool first = place == 0 || segment_of(spans[place - 1]) != segment;
    const bool last = place + 1 == spans.size() || segment_of(spans[place + 1]) != segment;
    if (first && spans[place].begin > segment) free.push_back({segment, spans[place].begin});
    const uintptr_t next = last ? end : spans[place + 1].begin;
    if (next > spans[place].end) free.push_back({spans[place].end, next});
  }
  for (uint64_t bytes = left(); bytes >= kSegmentBytes; bytes -= kSegmentBytes) free.push_back({0, kSegmentBytes});
  return would_serve(way, std::move(free), is_small);
}

// The allocator keeps segments with nothing in them, and serves requests from those, too: such of the stream that asks,
// of which nothing is known once another one has asked. Of ranges that grow what is free may be anywhere.
uint64_t SmallRequests::left() const {
  const auto stats = c10::getDeviceAllocator(state_.device.type())->getDeviceStats(state_.device.index());
  const auto held = static_cast<uint64_t>(stats.reserved_bytes[kAllPools].current);
  const int64_t in_use = stats.active_bytes[kSmallPool].current + stats.inactive_split_bytes[kSmallPool].current;
  const int64_t empty = std::max<int64_t>(stats.reserved_bytes[kSmallPool].current - in_use, 0);
  const auto whole = [](uint64_t bytes) { return bytes / kSegmentBytes * kSegmentBytes; };
  const bool counted = fixed_ && !streams_.seen_elsewhere();
  return whole(*limit_ - std::min(*limit_, held)) + (counted ? whole(static_cast<uint64_t>(empty)) : 0);
}

uint64_t SmallRequests::in_use() const {
  const auto stats = c10::getDeviceAllocator(state_.device.type())->getDeviceStats(state_.device.index());
  return static_cast<uint64_t>(stats.active_bytes[kSmallPool].current);
}

uint64_t SmallRequests::segments_in_use() const {
  uint64_t bytes = 0;
  uintptr_t latest = 0;
  for (const Span& span : blocks({})) {
    bytes += segment_of(span) == latest ? 0 : kSegmentBytes;
    latest = segment_of(span);
  }
  return bytes;
}

uint64_t SmallRequests::largest_block() const {
  uint64_t largest = 0;
  for (const auto& [address, tracked] : state_.tracker) {
    if (tracked.storage.use_count() > 0 && is_small(address->nbytes()))
      largest = std::max(largest, block_of(address->nbytes()));
  }
  return largest;
}

bool SmallRequests::send_some_away(uint64_t bytes, const Pins& pins) {
  if (in_compiled_code(state_.device)) return false;
  std::vector<Span> spans = blocks(pins);
  for (const Range& range : freed_) spans.push_back({range.begin, range.end, nullptr, {}, /*leaving=*/true});
  std::sort(spans.begin(), spans.end(), [](const Span& one, const Span& other) { return one.begin < other.begin; });
  for (const bool residents : {false, true}) {
    for (const uint64_t newest : {passive_.not_recent(), std::numeric_limits<uint64_t>::max()}) {
      const auto may_go = [&](const Span& span) {
        if (span.storage == nullptr) return span.leaving;
        const bool old = (residents || !span.tracked->resident) && span.tracked->last_use <= newest;
        return span.leaving || (old && passive_.may_leave(*span.tracked, *span.storage, pins));
      };
      const auto [first, behind] = neighbours(spans, bytes, may_go);
      bool released = false;
      for (size_t place = first; place < behind; ++place) {
        if (spans[place].storage == nullptr) continue;
        passive_.send_away(*spans[place].storage);
        note_freed({spans[place].begin, spans[place].end});
        released = true;
      }
      if (released) return true;
    }
  }
  return false;
}

bool SmallRequests::send_all_away(const Pins& pins) {
  if (in_compiled_code(state_.device)) return false;
  bool released = false;
  for (const Span& span : blocks(pins)) {
    if (span.storage == nullptr || !(span.leaving || passive_.may_leave(*span.tracked, *span.storage, pins))) continue;
    passive_.send_away(*span.storage);
    released = true;
  }
  return released;
}

// Segments beside each other are not joined.
void SmallRequests::note_freed(Range range) {
  const auto joins = [](const Range& one, const Range& other) {
    return one.end == other.begin && segment_at(one.begin) == segment_at(other.begin);
  };
  for (auto other = freed_.begin(); other != freed_.end();) {
    const bool beside = joins(*other, range) || joins(range, *other);
    if (beside) range = {std::min(range.begin, other->begin), std::max(range.end, other->end)};
    other = beside ? freed_.erase(other) : other + 1;
  }
  freed_.push_back(range);
}

// By address: those that are there, and may be on their way out; and what the running operator has been given.
std::vector<Span> SmallRequests::blocks(const Pins& pins) const {
  std::vector<Span> found;
  for (const auto& [address, tracked] : state_.tracker) {
    StoragePtr storage = tracked.storage.lock();
    if (storage == nullptr || !is_small(storage->nbytes())) continue;
    const Entry* entry = Store::entry_of(*storage);
    const void* block = entry == nullptr ? storage->_mutable_data_ptr_no_checks().get() : entry->block.get();
    if (block == nullptr) continue;
    const auto begin = reinterpret_cast<uintptr_t>(block);
    const bool pinned = std::find(pins.begin(), pins.end(), storage.get()) != pins.end();
    const bool leaving = entry != nullptr && entry->place == Place::kLeaving && !pinned;
    found.push_back({begin, begin + block_of(storage->nbytes()), &tracked, std::move(storage), leaving});
  }
  for (const Range& range : state_.arena.unseen) {
    const bool seen =
        std::any_of(found.begin(), found.end(), [&](const Span& one) { return one.begin == range.begin; });
    if (!seen && is_small(range.bytes())) found.push_back({range.begin, range.end, nullptr, {}, false});
  }
  std::sort(found.begin(), found.end(), [](const Span& one, const Span& other) { return one.begin < other.begin; });
  return found;
}

// Places of neighbours within one segment which, once gone, leave room for a block of that size: those of which such as
// touch each other hold most of it, as where they do not may lie what nobody looks at; then those of the fewest bytes,
// and that no operator used for longest.
std::pair<size_t, size_t> SmallRequests::neighbours(const std::vector<Span>& spans, uint64_t bytes,
                                                    const Layout::MayGo& may_go) {
  std::pair<size_t, size_t> best(0, 0);
  std::tuple<uint64_t, uint64_t, uint64_t> least;
  for (size_t first = 0; first < spans.size(); ++first) {
    const uintptr_t segment = segment_of(spans[first]), end = segment + kSegmentBytes;
    const uintptr_t begin = first == 0 ? segment : std::max(segment, spans[first - 1].end);
    uint64_t run = 0, held = 0;     // bytes of the last that touch each other, and the most of such
    uint64_t cost = 0, latest = 0;  // of those that are not leaving anyway; last use
    for (size_t last = first; last < spans.size() && spans[last].begin < end && may_go(spans[last]); ++last) {
      const uint64_t block = spans[last].end - spans[last].begin;
      run = (last > first && spans[last].begin == spans[last - 1].end ? run : 0) + block;
      held = std::max(held, run);
      cost += spans[last].leaving ? 0 : std::max(block, kLeastCost);
      if (spans[last].tracked != nullptr) latest = std::max(latest, spans[last].tracked->last_use);
      if ((last + 1 == spans.size() ? end : std::min(end, spans[last + 1].begin)) < begin + bytes) continue;
      const std::tuple order{bytes - std::min(bytes, held), cost, latest};
      if (best.second == 0 || order < least) {
        least = order;
        best = {first, last + 1};
      }
      if (held >= bytes) break;
    }
  }
  return best;
}

}  // namespace bayplan::swap

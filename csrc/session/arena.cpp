#include "session/arena.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "profiler/displaced.h"

namespace bayplan::swap {
namespace {

constexpr size_t kMostWindows = 32;                  // that are looked at in turn
constexpr uint64_t kSmallBytes = uint64_t{1} << 20;  // requests of at most so much have segments of their own

bool goes(const Span& span, const Layout::MayGo& may_go) { return span.storage && (span.leaving || may_go(span)); }

}  // namespace

uint64_t block_of(uint64_t bytes) { return static_cast<uint64_t>(block_bytes(bytes)); }

// In an expandable segment the arena is joined with what is free around it, so that a block may begin before it or end
// behind it.
Layout::Layout(const Arena& arena, const Tracker& tracker) : arena_{arena.begin, arena.end} {
  for (const auto& [address, tracked] : tracker) {
    StoragePtr storage = tracked.storage.lock();
    if (storage == nullptr) continue;
    const Entry* entry = Store::entry_of(*storage);
    const void* block = entry == nullptr ? storage->_mutable_data_ptr_no_checks().get() : entry->block.get();
    const auto begin = reinterpret_cast<uintptr_t>(block);
    const uintptr_t end = begin + block_of(storage->nbytes());
    if (block == nullptr || end <= arena_.begin || begin >= arena_.end) continue;
    const bool leaving = entry != nullptr && entry->place == Place::kLeaving;
    spans_.push_back({begin, end, &tracked, std::move(storage), leaving});
  }
  for (const Range& range : arena.unseen) {
    const bool seen =
        std::any_of(spans_.begin(), spans_.end(), [&](const Span& one) { return one.begin == range.begin; });
    if (!seen && range.end > arena_.begin && range.begin < arena_.end)
      spans_.push_back({range.begin, range.end, nullptr, {}, false});
  }
  std::sort(spans_.begin(), spans_.end(), [](const Span& one, const Span& other) { return one.begin < other.begin; });
}

uint64_t Layout::free_bytes() const {
  uint64_t used = 0;
  for (const Span& span : spans_) used += std::min(span.end, arena_.end) - std::max(span.begin, arena_.begin);
  return arena_.bytes() - used;
}

uint64_t Layout::largest_gap() const {
  uint64_t largest = 0;
  for (size_t place = 0; place <= spans_.size(); ++place) {
    if (gap_end(place) > gap_begin(place)) largest = std::max<uint64_t>(largest, gap_end(place) - gap_begin(place));
  }
  return largest;
}

namespace {

std::vector<Range>::iterator best_of(std::vector<Range>& ranges, uint64_t bytes) {
  auto best = ranges.end();
  for (auto range = ranges.begin(); range != ranges.end(); ++range) {
    if (range->bytes() >= bytes && (best == ranges.end() || range->bytes() < best->bytes())) best = range;
  }
  return best;
}

// Makes a range free again, together with those beside it.
void give_back(std::vector<Range>& ranges, Range freed) {
  for (auto range = ranges.begin(); range != ranges.end();) {
    const bool beside = range->begin == freed.end || range->end == freed.begin;
    if (beside) freed = {std::min(freed.begin, range->begin), std::max(freed.end, range->end)};
    range = beside ? ranges.erase(range) : range + 1;
  }
  ranges.push_back(freed);
}

}  // namespace

bool would_serve(const std::vector<Requests::Event>& events, std::vector<Range> free, bool (*counts)(uint64_t bytes)) {
  std::vector<Range> given;
  for (const Requests::Event& event : events) {
    if (event.bytes == 0) {
      if (given[event.number].bytes() > 0) give_back(free, given[event.number]);
      continue;
    }
    given.push_back({});
    if (!counts(event.bytes)) continue;
    const auto found = best_of(free, event.bytes);
    if (found == free.end()) return false;
    const bool whole = event.bytes > kSmallBytes && found->bytes() - event.bytes <= kSmallBytes;  // is not cut off
    const uintptr_t end = whole ? found->end : found->begin + event.bytes;
    given.back() = {found->begin, end};
    found->begin = end;
  }
  return true;
}

bool Layout::serves(const std::vector<Requests::Event>& events) const {
  return would_serve(events, gaps(1), [](uint64_t bytes) { return bytes > kSmallBytes; });
}

std::vector<Range> Layout::gaps(uint64_t bytes) const {
  std::vector<Range> found;
  for (size_t place = 0; place <= spans_.size(); ++place) {
    if (gap_end(place) >= gap_begin(place) + bytes) found.push_back({gap_begin(place), gap_end(place)});
  }
  return found;
}

uint64_t Layout::fitting(uint64_t bytes) const {
  uint64_t count = 0;
  for (size_t place = 0; place <= spans_.size(); ++place) {
    if (gap_end(place) > gap_begin(place)) count += (gap_end(place) - gap_begin(place)) / bytes;
  }
  return count;
}

// From each first storage on as many as are needed; the last one of a later start is never an earlier one.
std::vector<Span> Layout::window(uint64_t bytes, const MayGo& may_go) const {
  std::vector<bool> movable(spans_.size());
  for (size_t place = 0; place < spans_.size(); ++place) movable[place] = goes(spans_[place], may_go);
  std::tuple<uint64_t, uint64_t> least;
  std::pair<size_t, size_t> best(0, 0);
  for (size_t first = 0; first < spans_.size(); ++first) {
    uint64_t cost = 0, latest = 0;
    for (size_t last = first; last < spans_.size() && movable[last]; ++last) {
      const Span& span = spans_[last];
      if (!span.leaving) cost += span.end - span.begin;
      latest = std::max(latest, span.tracked->last_use);
      if (gap_end(last + 1) - gap_begin(first) < bytes) continue;
      const std::tuple order{cost, latest};
      if (best.second == 0 || order < least) {
        least = order;
        best = {first, last + 1};
      }
      break;
    }
  }
  return {spans_.begin() + static_cast<std::ptrdiff_t>(best.first),
          spans_.begin() + static_cast<std::ptrdiff_t>(best.second)};
}

// By the bytes to move; from each first storage on as many as are needed.
std::vector<Layout::Window> Layout::windows(uint64_t bytes, const MayGo& may_move) const {
  std::vector<Window> found;
  for (size_t first = 0; first < spans_.size(); ++first) {
    uint64_t cost = 0;
    for (size_t last = first; last < spans_.size() && !spans_[last].leaving && goes(spans_[last], may_move); ++last) {
      cost += spans_[last].end - spans_[last].begin;
      if (gap_end(last + 1) < gap_begin(first) + bytes) continue;
      found.push_back({cost, first, last + 1});
      break;
    }
  }
  std::sort(found.begin(), found.end(), [](const Window& one, const Window& other) {
    return std::tie(one.cost, one.first) < std::tie(other.cost, other.first);
  });
  return found;
}

std::vector<Shift> Layout::shifts(uint64_t bytes, const MayGo& may_move) const {
  const std::vector<Window> found = windows(bytes, may_move);
  for (size_t tried = 0; tried < std::min(found.size(), kMostWindows); ++tried) {
    std::vector<Shift> places = elsewhere(found[tried]);
    if (!places.empty()) return places;
  }
  return {};
}

// As the allocator will place them, the largest first: in the smallest free range that holds a block, at its begin.
// What is free of the window grows meanwhile; where it is the best fit for one of its own blocks, nothing is gained.
std::vector<Shift> Layout::elsewhere(const Window& window) const {
  std::vector<Range> outside, inside;
  for (size_t place = 0; place <= spans_.size(); ++place) {
    if (gap_end(place) <= gap_begin(place)) continue;
    (place < window.first || place > window.behind ? outside : inside).push_back({gap_begin(place), gap_end(place)});
  }
  std::vector<const Span*> moving;
  for (size_t place = window.first; place < window.behind; ++place) moving.push_back(&spans_[place]);
  std::stable_sort(moving.begin(), moving.end(), [](const Span* one, const Span* other) {
    return one->end - one->begin > other->end - other->begin;
  });
  std::vector<Shift> shifts;
  for (const Span* span : moving) {
    const uint64_t bytes = span->end - span->begin;
    const auto found = best_of(outside, bytes);
    const auto within = best_of(inside, bytes);
    if (found == outside.end()) return {};
    if (within != inside.end() && within->bytes() <= found->bytes()) return {};
    shifts.push_back({span->storage, found->begin, found->end});
    found->begin += bytes;
    give_back(inside, {span->begin, span->end});
  }
  return shifts;
}

uint64_t Layout::widest(const MayGo& may_go) const {
  uint64_t most = 0;
  uintptr_t begin = arena_.begin;
  for (size_t place = 0; place <= spans_.size(); ++place) {
    if (gap_end(place) > begin) most = std::max<uint64_t>(most, gap_end(place) - begin);
    if (place < spans_.size() && !goes(spans_[place], may_go)) begin = spans_[place].end;
  }
  return most;
}

}  // namespace bayplan::swap

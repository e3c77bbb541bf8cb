#include "session/arena.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "profiler/displaced.h"

namespace bayplan::swap {

uint64_t block_of(uint64_t bytes) { return static_cast<uint64_t>(block_bytes(bytes)); }

// In an expandable segment the arena is joined with what is free around it, so that a block may begin before it or end
// behind it.
Layout::Layout(Arena arena, const Tracker& tracker) : arena_(arena) {
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
  std::sort(spans_.begin(), spans_.end(), [](const Span& one, const Span& other) { return one.begin < other.begin; });
}

uint64_t Layout::free_bytes() const {
  uint64_t used = 0;
  for (const Span& span : spans_) used += std::min(span.end, arena_.end) - std::max(span.begin, arena_.begin);
  return arena_.end - arena_.begin - used;
}

uint64_t Layout::largest_gap() const {
  uint64_t largest = 0;
  for (size_t place = 0; place <= spans_.size(); ++place) {
    if (gap_end(place) > gap_begin(place)) largest = std::max<uint64_t>(largest, gap_end(place) - gap_begin(place));
  }
  return largest;
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
  for (size_t place = 0; place < spans_.size(); ++place)
    movable[place] = spans_[place].leaving || may_go(spans_[place]);
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

uint64_t Layout::widest(const MayGo& may_go) const {
  uint64_t most = 0;
  uintptr_t begin = arena_.begin;
  for (size_t place = 0; place <= spans_.size(); ++place) {
    if (gap_end(place) > begin) most = std::max<uint64_t>(most, gap_end(place) - begin);
    const bool stays = place < spans_.size() && !spans_[place].leaving && !may_go(spans_[place]);
    if (stays) begin = spans_[place].end;
  }
  return most;
}

}  // namespace bayplan::swap

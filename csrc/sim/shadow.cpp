#include "sim/shadow.h"

#include <algorithm>

namespace sim {
namespace {

constexpr size_t kMostRows = 1 << 20;  // Beyond it two strided tensors count as overlapping.
constexpr size_t kMostAccesses = 64;   // Per segment; beyond it the oldest ordered ones go.

bool ordered(const Access& earlier, const Access& later, const VectorClock& past) {
  return earlier.stream == later.stream || past.of(earlier.stream) >= earlier.tick;
}

size_t rows_of(const Access& access) {
  size_t rows = 1;
  if (access.strided)
    for (int64_t size : access.strided->sizes) rows *= static_cast<size_t>(size);
  return rows;
}

using Rows = std::vector<std::pair<size_t, size_t>>;

Rows rows(const Access& access) {
  if (!access.strided) return {{access.begin, access.end}};
  const Strided& s = *access.strided;
  Rows found{{s.offset, s.offset + s.row_bytes}};
  for (size_t dim = 0; dim < s.sizes.size(); ++dim) {
    const size_t known = found.size();
    for (int64_t i = 1; i < s.sizes[dim]; ++i)
      for (size_t r = 0; r < known; ++r) {
        const size_t shift = static_cast<size_t>(i * s.strides[dim]);
        found.emplace_back(found[r].first + shift, found[r].second + shift);
      }
  }
  std::sort(found.begin(), found.end());
  return found;
}

bool same_bytes(const Access& a, const Access& b) {
  if (a.begin != b.begin || a.end != b.end) return false;
  if (!a.strided || !b.strided) return !a.strided && !b.strided;
  return a.strided == b.strided || *a.strided == *b.strided;
}

// Whether any later access that races with `old` also races with `fresh`, so that `old` need not be kept.
bool stands_for(const Access& fresh, const Access& old, const VectorClock& past) {
  if (fresh.strided && !same_bytes(fresh, old)) return false;
  if (fresh.write) return true;  // Either ordered after `old`, or the race has just been reported.
  return !old.write && ordered(old, fresh, past);
}

}  // namespace

bool Strided::operator==(const Strided& other) const {
  return offset == other.offset && row_bytes == other.row_bytes && sizes == other.sizes && strides == other.strides;
}

bool overlap(const Access& a, const Access& b) {
  if (a.begin >= b.end || b.begin >= a.end) return false;
  if (!a.strided && !b.strided) return true;
  if (same_bytes(a, b) || rows_of(a) > kMostRows || rows_of(b) > kMostRows) return true;
  const Rows left = rows(a), right = rows(b);
  for (size_t i = 0, j = 0; i < left.size() && j < right.size();) {
    if (left[i].second <= right[j].first)
      ++i;
    else if (right[j].second <= left[i].first)
      ++j;
    else
      return true;
  }
  return false;
}

void Shadow::reset(const Access& access) {
  segments_.clear();
  segments_.push_back({access.begin, access.end, {access}});
}

std::vector<Shadow::Segment>::iterator Shadow::first_beyond(size_t byte) {
  return std::partition_point(segments_.begin(), segments_.end(), [&](const Segment& s) { return s.end <= byte; });
}

void Shadow::split_at(size_t byte) {
  auto at = first_beyond(byte);
  if (at == segments_.end() || at->begin >= byte) return;
  Segment right{byte, at->end, at->accesses};
  at->end = byte;
  segments_.insert(at + 1, std::move(right));
}

void Shadow::enter_segment(Segment& segment, const Access& access, const VectorClock& past, IsOpen is_open,
                           std::vector<Access>& conflicts) {
  auto& known = segment.accesses;
  for (const Access& old : known) {
    if (!(old.write || access.write) || ordered(old, access, past) || !overlap(old, access)) continue;
    const bool told = std::any_of(conflicts.begin(), conflicts.end(), [&](const Access& c) {
      return c.stream == old.stream && c.tick == old.tick && c.write == old.write;
    });
    if (!told) conflicts.push_back(old);
  }
  const auto gone = [&](const Access& old) { return stands_for(access, old, past) && !is_open(old); };
  known.erase(std::remove_if(known.begin(), known.end(), gone), known.end());
  if (known.size() >= kMostAccesses) known.erase(known.begin());
  known.push_back(access);
}

void Shadow::enter(const Access& access, const VectorClock& past, IsOpen is_open, std::vector<Access>& conflicts) {
  if (access.begin >= access.end) return;
  split_at(access.begin);
  split_at(access.end);
  auto at = first_beyond(access.begin);
  size_t reached = access.begin;
  for (; at != segments_.end() && at->begin < access.end; ++at) {
    if (reached < at->begin)
      at = segments_.insert(at, {reached, at->begin, {access}}) + 1;  // Touched for the first time.
    enter_segment(*at, access, past, is_open, conflicts);
    reached = at->end;
  }
  if (reached < access.end) segments_.insert(at, {reached, access.end, {access}});
  if (access.write && !access.strided) merge(access);
}

void Shadow::merge(const Access& access) {
  auto first = first_beyond(access.begin);
  auto last = std::find_if(first, segments_.end(), [&](const Segment& s) { return s.begin >= access.end; });
  const auto alone = [](const Segment& segment) { return segment.accesses.size() == 1; };
  if (last - first < 2 || !std::all_of(first, last, alone)) return;
  first->end = access.end;
  segments_.erase(first + 1, last);
}

}  // namespace sim

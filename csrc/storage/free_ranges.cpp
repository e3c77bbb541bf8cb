#include "storage/free_ranges.h"

#include <algorithm>
#include <iterator>

namespace bayplan::swap {
namespace {

void add(std::vector<LastCopy>& copies, const LastCopy& copy) {
  const auto same = [&](const LastCopy& known) { return known.stream == copy.stream; };
  const auto known = std::find_if(copies.begin(), copies.end(), same);
  if (known == copies.end()) {
    copies.push_back(copy);
  } else if (known->order < copy.order) {
    *known = copy;
  }
}

}  // namespace

FreeRanges::FreeRanges(size_t bytes) : bytes_(in_grains(bytes)) { ranges_.emplace(0, Range{bytes_, {}}); }

FreeRanges::Ranges::const_iterator FreeRanges::best(size_t bytes) const {
  auto found = ranges_.end();
  for (auto range = ranges_.begin(); range != ranges_.end(); ++range) {
    if (range->second.bytes < bytes) continue;
    if (ends_memory(range) && found != ranges_.end()) continue;
    if (found == ranges_.end() || range->second.bytes < found->second.bytes) found = range;
  }
  return found;
}

std::optional<std::pair<bool, size_t>> FreeRanges::fit(size_t bytes) const {
  const auto found = best(in_grains(bytes));
  if (found == ranges_.end()) return std::nullopt;
  return std::make_pair(ends_memory(found), found->second.bytes);
}

size_t FreeRanges::take(size_t bytes, std::vector<LastCopy>* before) {
  const size_t wanted = in_grains(bytes);
  const auto found = best(wanted);
  const size_t offset = found->first;
  const Range range = found->second;
  ranges_.erase(found);
  if (before != nullptr) *before = range.copies;
  if (range.bytes > wanted) ranges_.emplace(offset + wanted, Range{range.bytes - wanted, range.copies});
  taken_ += wanted;
  high_water_ = std::max(high_water_, offset + wanted);
  return offset;
}

void FreeRanges::give_back(size_t offset, size_t bytes, const std::optional<LastCopy>& last) {
  Range range{in_grains(bytes), {}};
  if (last.has_value()) range.copies.push_back(*last);
  taken_ -= range.bytes;
  const auto at = ranges_.emplace(offset, std::move(range)).first;
  const auto after = std::next(at);
  if (after != ranges_.end()) join(at, after);
  if (at != ranges_.begin()) join(std::prev(at), at);
}

// Only where the second begins at the first one's end.
void FreeRanges::join(Ranges::iterator first, Ranges::iterator second) {
  if (first->first + first->second.bytes != second->first) return;
  first->second.bytes += second->second.bytes;
  for (const LastCopy& copy : second->second.copies) add(first->second.copies, copy);
  ranges_.erase(second);
}

std::vector<LastCopy> FreeRanges::copies() const {
  std::vector<LastCopy> all;
  for (const auto& [offset, range] : ranges_) {
    for (const LastCopy& copy : range.copies) add(all, copy);
  }
  return all;
}

}  // namespace bayplan::swap

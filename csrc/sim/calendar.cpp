#include "sim/calendar.h"

#include <c10/util/Exception.h>

#include <algorithm>

namespace sim {

void LinkCalendar::configure(const std::vector<bool>& joins_devices) {
  lanes_.clear();
  lanes_.resize(joins_devices.size());
  for (size_t lane = 0; lane < lanes_.size(); ++lane) lanes_[lane].kept = joins_devices[lane];
}

void LinkCalendar::clear() {
  for (Lane& lane : lanes_) lane = {lane.kept, 0, {}};
}

Nanoseconds LinkCalendar::copy(size_t lane, Nanoseconds earliest, Nanoseconds duration) {
  Lane& used = lanes_.at(lane);
  Nanoseconds start = std::max(earliest, used.last_copy);
  if (used.kept && duration > 0) {
    start = reserve({lane}, start, duration);
  }
  used.last_copy = start + duration;
  return start;
}

Nanoseconds LinkCalendar::reserve(const std::vector<size_t>& lanes, Nanoseconds earliest, Nanoseconds duration) {
  if (duration <= 0) return earliest;
  Nanoseconds start = earliest;
  for (Nanoseconds later = start;; start = later) {
    for (size_t lane : lanes) later = std::max(later, end_of_clash(lanes_.at(lane), start, start + duration));
    if (later == start) break;
  }
  for (size_t lane : lanes) {
    TORCH_CHECK(lanes_[lane].kept, "lane ", lane, " joins no devices, so that no group can use it");
    keep(lanes_[lane], {start, start + duration});
  }
  return start;
}

// Spans do not overlap: the last one that begins before `end` ends last.
Nanoseconds LinkCalendar::end_of_clash(const Lane& lane, Nanoseconds start, Nanoseconds end) {
  const auto after =
      std::partition_point(lane.spans.begin(), lane.spans.end(), [&](const Span& span) { return span.start < end; });
  if (after == lane.spans.begin()) return 0;
  const Nanoseconds last = std::prev(after)->end;
  return last > start ? last : 0;
}

// Spans without a gap between them become one: who looks for a gap sees no difference.
void LinkCalendar::keep(Lane& lane, Span span) {
  const auto after = std::partition_point(lane.spans.begin(), lane.spans.end(),
                                          [&](const Span& other) { return other.start < span.start; });
  const bool joins_next = after != lane.spans.end() && after->start == span.end;
  if (after != lane.spans.begin() && std::prev(after)->end == span.start) {
    std::prev(after)->end = joins_next ? after->end : span.end;
    if (joins_next) lane.spans.erase(after);
  } else if (joins_next) {
    after->start = span.start;
  } else {
    lane.spans.insert(after, span);
  }
}

}  // namespace sim

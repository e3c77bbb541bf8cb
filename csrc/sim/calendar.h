// When each lane of the links is in use: copies between devices and operations of groups share one calendar.
#pragma once
#include <cstddef>
#include <utility>
#include <vector>

#include "sim/clock.h"

namespace sim {

// A lane carries one transfer at a time. Copies go in the order of their issue: none begins before the one issued
// before it on its lane has ended. An operation of a group, which wants several lanes at once, takes the first gap in
// which all of them are free; so does a copy among such operations.
class LinkCalendar {
 public:
  // By lane, whether it joins devices. Only there can a group want it, and only there past transfers are kept.
  void configure(const std::vector<bool>& joins_devices);
  void clear();
  // The start of a transfer on one lane, not before `earliest`.
  Nanoseconds copy(size_t lane, Nanoseconds earliest, Nanoseconds duration);
  // The start of an operation on all of these lanes. What takes no time needs none.
  Nanoseconds reserve(const std::vector<size_t>& lanes, Nanoseconds earliest, Nanoseconds duration);

 private:
  struct Lane {
    bool kept = false;
    Nanoseconds last_copy = 0;  // Its end.
    std::vector<Span> spans;    // Sorted; they do not overlap.
  };
  static Nanoseconds end_of_clash(const Lane& lane, Nanoseconds start, Nanoseconds end);
  static void keep(Lane& lane, Span span);

  std::vector<Lane> lanes_;
};

}  // namespace sim

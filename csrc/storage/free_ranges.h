// Which bytes of a piece of memory are free, and which copies must end before they are written again.
#pragma once

#include <c10/core/Stream.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "storage/lanes.h"

namespace bayplan::swap {

// The end of a copy on a stream; of two on one stream the one of the higher order is the later.
struct LastCopy {
  EventPtr event;
  c10::Stream stream;
  uint64_t order;
};

// Hands out ranges by best fit and merges what comes back. The range that ends the memory is cut only where no other is
// large enough: so a replay in memory without end tells how much the same requests need.
class FreeRanges {
 public:
  static constexpr size_t kGrain = 64;  // bytes: ranges begin and end at multiples

  // The bytes of the least whole grains that hold so many.
  static size_t in_grains(size_t bytes) { return (bytes + (bytes == 0) + kGrain - 1) / kGrain * kGrain; }

  explicit FreeRanges(size_t bytes);

  // The range that a request would be cut from: whether it ends the memory, and its bytes; the less, the better the
  // fit. Nothing where none is large enough.
  std::optional<std::pair<bool, size_t>> fit(size_t bytes) const;
  // Takes the range that fits best: its offset; `before` gets the copies that a writer must come after. The caller has
  // asked whether there is one.
  size_t take(size_t bytes, std::vector<LastCopy>* before);
  void give_back(size_t offset, size_t bytes, const std::optional<LastCopy>& last);

  bool idle() const { return taken_ == 0; }
  // The end of the bytes that were ever taken.
  size_t high_water() const { return high_water_; }
  // The copies that may still use free bytes.
  std::vector<LastCopy> copies() const;

 private:
  struct Range {
    size_t bytes;
    std::vector<LastCopy> copies;
  };
  using Ranges = std::map<size_t, Range>;

  bool ends_memory(Ranges::const_iterator range) const { return range->first + range->second.bytes == bytes_; }
  Ranges::const_iterator best(size_t bytes) const;
  void join(Ranges::iterator first, Ranges::iterator second);

  Ranges ranges_;
  const size_t bytes_;
  size_t taken_ = 0;
  size_t high_water_ = 0;
};

}  // namespace bayplan::swap

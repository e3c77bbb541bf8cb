// The least of any range of some numbers, of which whole ranges change together; all in logarithmic time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

namespace swap {

class RangeMin {
 public:
  void set(const std::vector<int64_t>& values) {
    for (width_ = 1; width_ < values.size();) width_ *= 2;
    least_.assign(2 * width_, kMost);
    added_.assign(width_, 0);
    std::copy(values.begin(), values.end(), least_.begin() + width_);
    for (size_t node = width_; --node > 0;) least_[node] = std::min(least_[2 * node], least_[2 * node + 1]);
  }
  void add(size_t begin, size_t end, int64_t value) { add(1, 0, width_, begin, end, value); }
  int64_t least(size_t begin, size_t end) const { return least(1, 0, width_, begin, end); }

 private:
  static constexpr int64_t kMost = std::numeric_limits<int64_t>::max() / 2;

  void add(size_t node, size_t low, size_t high, size_t begin, size_t end, int64_t value) {
    if (high <= begin || end <= low) return;
    if (begin <= low && high <= end) {
      least_[node] += value;
      if (node < width_) added_[node] += value;
      return;
    }
    const size_t middle = (low + high) / 2;
    add(2 * node, low, middle, begin, end, value);
    add(2 * node + 1, middle, high, begin, end, value);
    least_[node] = std::min(least_[2 * node], least_[2 * node + 1]) + added_[node];
  }
  int64_t least(size_t node, size_t low, size_t high, size_t begin, size_t end) const {
    if (high <= begin || end <= low) return kMost;
    if (begin <= low && high <= end) return least_[node];
    const size_t middle = (low + high) / 2;
    return added_[node] +
           std::min(least(2 * node, low, middle, begin, end), least(2 * node + 1, middle, high, begin, end));
  }

  size_t width_ = 1;
  std::vector<int64_t> least_, added_;  // By node of a tree: of its range; of the whole range, beside its parts'.
};

}  // namespace swap

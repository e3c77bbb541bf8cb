// Python's random.Random, draw for draw, so that a search in C++ ends where the same search in Python does.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace joint {

class Random {
 public:
  // `state`: 624 words and the place of the next one, as Random.getstate() tells them.
  void set(const std::vector<uint32_t>& state);
  std::vector<uint32_t> state() const;

  // From 0 to below 1, with 53 bits.
  double random();
  // From 0 to below n > 0.
  int64_t below(int64_t n);
  // Both ends included.
  int64_t between(int64_t least, int64_t most) { return least + below(most - least + 1); }
  double uniform(double least, double most) { return least + (most - least) * random(); }

  template <typename Value>
  const Value& choice(const std::vector<Value>& values) {
    return values[below(static_cast<int64_t>(values.size()))];
  }
  template <typename Value>
  void shuffle(std::vector<Value>& values) {
    for (size_t place = values.size(); place-- > 1;)
      std::swap(values[place], values[below(static_cast<int64_t>(place) + 1)]);
  }

 private:
  uint32_t word();
  uint64_t bits(int count);

  std::vector<uint32_t> words_ = std::vector<uint32_t>(624, 0);
  size_t next_ = 624;
};

}  // namespace joint

// What a tensor is recognised by in the next iteration (SmartSwap, appendix A): integers only, compared as one.
//
// Eager programs give tensors no names. Two tensors of different iterations count as the same if the same operators
// used them in the same order, and they have the same type and size. Layers of one kind look alike, so a sighting also
// has an *ordinal*: how many sightings of the same features came before it in the iteration. Operators that come or go
// elsewhere change neither.
#pragma once

#include <c10/core/ScalarType.h>

#include <array>
#include <cstdint>
#include <vector>

namespace bayplan::swap {

// Who runs an operator.
enum class Phase : uint8_t { kForward, kWithoutGradients, kBackward, kOptimizer };
constexpr size_t kPhases = 4;

// Operators by falling frequency: the 32 most frequent have a bit of their own, the first 255 a number of eight bits.
class Ranks {
 public:
  // Operator ids, the most frequent first. Those that are not listed share the last number and have no bit.
  void set(const std::vector<uint32_t>& by_frequency) {
    numbers_.clear();
    for (size_t rank = 0; rank < by_frequency.size() && rank < kOthers; ++rank) {
      const uint32_t id = by_frequency[rank];
      if (numbers_.size() <= id) numbers_.resize(id + 1, kOthers);
      numbers_[id] = static_cast<uint8_t>(rank);
    }
  }
  uint8_t number(uint32_t id) const { return id < numbers_.size() ? numbers_[id] : kOthers; }
  uint32_t bit(uint32_t id) const {
    const uint8_t rank = number(id);
    return rank < 32 ? uint32_t{1} << rank : 0;
  }

 private:
  static constexpr uint8_t kOthers = 255;
  std::vector<uint8_t> numbers_;  // by operator id
};

struct Features {
  uint32_t uses = 0;   // operators that took it as an argument in this iteration
  uint32_t tags = 0;   // one bit for each frequent operator among them
  uint64_t calls = 0;  // the last eight of them, eight bits each

  void use(const Ranks& ranks, uint32_t id) {
    ++uses;
    tags |= ranks.bit(id);
    calls = (calls << 8) + ranks.number(id);
  }

  // `index`: for a tensor that no operator has used yet, its index among the results of its maker.
  uint64_t key(Phase phase, uint64_t bytes, c10::ScalarType dtype, uint32_t index = 0) const {
    const uint64_t kind = static_cast<uint64_t>(phase) | static_cast<uint64_t>(dtype) << 8 | uint64_t{index} << 32;
    uint64_t mixed = mix(calls ^ (uint64_t{uses} << 32 | tags) * 0x9e3779b97f4a7c15u);
    mixed = mix(mixed ^ bytes * 0xc2b2ae3d27d4eb4fu);
    return mix(mixed ^ kind * 0x165667b19e3779f9u);
  }

 private:
  // A bijection of 64 bits that spreads them (the finaliser of splitmix64).
  static uint64_t mix(uint64_t value) {
    value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9u;
    value = (value ^ value >> 27) * 0x94d049bb133111ebu;
    return value ^ value >> 31;
  }
};

}  // namespace bayplan::swap

// A problem of the joint planner as plain lists, indexed by op: `Given` and its graph of solvers/joint/given.py.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

namespace joint {

// Times in ticks, sizes in bytes; `host` where the host is limited.
struct Given {
  std::vector<int64_t> time, size, workspace, out_time, in_time;
  std::vector<int64_t> launch, again, tail, move;  // The host's, where launches take time.
  std::vector<int64_t> sync;  // By stage: the host waits for it (1), for the lanes, too (2), or not.
  std::vector<int64_t> sent;  // What the lane out takes for what the program sends to the host, and
  std::vector<int64_t> read;  // for numbers that the host then reads.
  std::vector<char> comm, replay, hideable, waits;
  std::vector<std::vector<int64_t>> inputs, users;  // Each op once, in ascending order.
  int64_t replays_from = 0, static_bytes = 0, budget = 0;
  std::optional<int64_t> host;
  bool shared = false, launched = false;

  int64_t count() const { return static_cast<int64_t>(time.size()); }
};

// What a choice owes beside its time (`Shadow` of solvers/joint/choice.py): ticks for each op's output that is away at
// `stage`, `stays` ticks for each byte that is only kept then.
struct Shadow {
  int64_t stage = 0;
  std::vector<int64_t> leaves;
  double stays = 0;
};

// The place of the first entry of a sorted list that is not below a value; behind the last one where there is none.
template <typename Value>
size_t lower(const std::vector<Value>& sorted, const Value& value) {
  return std::lower_bound(sorted.begin(), sorted.end(), value) - sorted.begin();
}

// The place of the first entry above it.
template <typename Value>
size_t upper(const std::vector<Value>& sorted, const Value& value) {
  return std::upper_bound(sorted.begin(), sorted.end(), value) - sorted.begin();
}

template <typename Value>
bool holds(const std::vector<Value>& sorted, const Value& value) {
  return std::binary_search(sorted.begin(), sorted.end(), value);
}

template <typename Value>
void add(std::vector<Value>& sorted, const Value& value) {
  sorted.insert(sorted.begin() + lower(sorted, value), value);
}

template <typename Value>
void drop(std::vector<Value>& sorted, const Value& value) {
  const size_t place = lower(sorted, value);
  if (place < sorted.size() && sorted[place] == value) sorted.erase(sorted.begin() + place);
}

}  // namespace joint

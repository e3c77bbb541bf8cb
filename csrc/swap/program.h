// A swap schedule as a table: for each operator of the step, what stands before it and what follows it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "profiler/operators.h"

namespace bayplan::swap {

enum class Deed : uint8_t { kRelease, kSwapIn, kSwapOut };

// One `after` edge: wait for the end of that action of the schedule.
struct Wait {
  uint32_t action;
  // The action is the last on the compute lane so far, so "now" on that lane stands for it. Now also covers what the
  // host did since: the allocation of the block that the waiting copy is about to fill.
  bool frontier;
};

struct Action {
  Deed deed;
  uint32_t id;  // index in the schedule
  std::vector<uint32_t> slots;
  std::vector<Wait> waits;
  bool awaited;  // some action of another lane waits for it: record an event
};

// Where a storage shows itself: as the how-manieth tensor among the operator's arguments, or among its results.
struct Locator {
  uint32_t position;
  uint32_t slot;
};

struct OpRow {
  std::string name;
  uint32_t id;  // of its `compute` action
  bool awaited;
  std::vector<Locator> arguments;
  std::vector<Locator> results;
  std::vector<uint32_t> hidden;  // slots of storages that it allocates for later without returning them
  std::vector<Action> before;
  std::vector<Wait> waits;
  std::vector<uint32_t> arrivals;  // slots that the operator is the first to use again
  std::vector<Action> after;
};

// A tensor that the plan moves.
struct Slot {
  std::string label;  // for messages
  uint64_t bytes;
};

struct Program {
  std::vector<OpRow> rows;
  std::vector<Slot> slots;
  uint32_t actions = 0;  // number of actions of the schedule

  bool needs_results() const {
    for (const OpRow& row : rows) {
      if (!row.results.empty() || !row.hidden.empty()) {
        return true;
      }
    }
    return false;
  }
};

}  // namespace bayplan::swap

// A swap schedule as a table: for each operator of the step, what stands before it and what follows it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "profiler/operators.h"
#include "storage/action_kind.h"

namespace bayplan::swap {

// One `after` edge: wait for the end of that action of the schedule.
struct Wait {
  uint32_t action;
  // The action is the last on the compute lane so far, so "now" on that lane stands for it. Now also covers what the
  // host did since: the allocation of the block that the waiting copy is about to fill.
  bool frontier;
};

struct Action {
  ActionKind kind;
  uint32_t id;  // index in the schedule
  std::vector<uint32_t> slots;
  std::vector<Wait> waits;
  bool awaited;  // some action of another lane waits for it: record an event
};

// Where a storage shows itself: its index among the operator's arguments or results (flattened, those on the device
// only), or among the distinct storages that operators inside it returned (`StorageSet` in profiler/storages.h).
struct Locator {
  uint32_t position;
  uint32_t slot;
};

// A storage that the operator returned in the profile: its index among the results, and its size.
struct ResultSize {
  uint32_t position;
  uint64_t bytes;
};

struct OpRow {
  std::string name;
  uint32_t id;  // of its `compute` action
  bool awaited;
  std::vector<Locator> arguments;
  std::vector<Locator> results;
  std::vector<Locator> inner;     // of storages that it allocates for later without returning them
  bool returns;                   // tensors on the device, in the profile
  std::vector<ResultSize> sizes;  // of what it made and returned, in order of position
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
};

}  // namespace bayplan::swap

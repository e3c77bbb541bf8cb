// What the parts of a session share: the storages that it knows, the iteration that runs, and where it is in that.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <utility>
#include <vector>

#include "follow/follower.h"
#include "follow/tracker.h"
#include "profiler/operators.h"
#include "session/iteration.h"
#include "session/needs.h"

namespace bayplan::swap {

// The counted operator that runs; without a frame there is none.
struct RunningOperator {
  const at::RecordFunction* frame = nullptr;
  const OperatorInfo* info = nullptr;
  Phase phase = Phase::kForward;
  uint64_t number = 0;
  Arguments given = {};
  uint64_t before = 0;    // bytes that the allocator had given out, all in all
  uint64_t distinct = 0;  // of the arguments, each storage once
  uint64_t place = 0;     // in the iteration (PlaceNeeds)
};

// Device addresses.
struct Range {
  uintptr_t begin = 0;
  uintptr_t end = 0;

  uint64_t bytes() const { return end - begin; }
};

// A range of device addresses that the allocator cuts blocks from (arena.h).
struct Arena {
  uintptr_t begin = 0;
  uintptr_t end = 0;
  std::vector<Range> unseen = {};  // where blocks lie that nobody has seen, during a request

  bool there() const { return end > begin; }
  uint64_t bytes() const { return end - begin; }
};

struct SessionState {
  SessionState(Follower& session, SessionOptions options, ComputeStream& compute)
      : device(session.device()),
        options(options),
        store(Store::of(session.device())),
        compute(compute),
        session_(session) {}

  void keep_error(std::exception_ptr error) { session_.keep_error(std::move(error)); }

  // The engine works on the host from now on, until the result goes: marked where somebody measures that.
  EngineWork work() { return EngineWork(iteration.clock.timeline.get(), *compute); }
  // Somebody else uses the storage, or knows its address.
  bool must_stay(const Tracked& tracked) const { return tracked.barred || tracked.held >= iterations; }

  const c10::Device device;
  const SessionOptions options;
  Store& store;
  ComputeStream& compute;
  Tracker tracker;
  Iteration iteration;
  SessionCounts counts;
  RunningOperator running;
  uint64_t now = 0;  // operators since the session began
  uint64_t iterations = 1;
  Arena arena;
  bool held_up = false;  // room lacks, and nothing could leave for it while other threads are inside operators
  // Whether a block of that size can be had without asking the driver, if need be (`others_leave`) once others have
  // left for it; so it says where nothing is known of that.
  std::function<bool(uint64_t bytes, bool others_leave)> make_room = [](uint64_t, bool) { return true; };

 private:
  Follower& session_;
};

}  // namespace bayplan::swap

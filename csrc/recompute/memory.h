// What a device's memory did while tapes recorded and replayed, event by event: from one measured step, the memory of
// the same step under other policies is reckoned (runtime/recompute/footprint.py).
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Storage.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "profiler/detailed.h"

namespace bayplan::recompute {

// `index` is a node (kNode to kRan), a value (kSave to kDied, kRead), or what the caller says (kWait, kMark); of kElse
// 0 where the operator begins, and 1 where it ends. A value below 0 is none of the tape's, but what its region was
// given
// (`follow`).
enum class Happened : uint8_t {
  kNode,      // an operator of the region begins
  kMade,      // ... and has made its values
  kRun,       // it begins to run again
  kRan,       // ... and has
  kSave,      // autograd has saved a tensor of the value
  kTake,      // autograd asks for the value: what is absent runs again
  kTaken,     // ... and has it
  kUnsave,    // autograd has let go of a tensor of the value
  kDied,      // the value's first storage is gone
  kEnd,       // the region has ended, and what nobody needs is let go
  kWait,      // the program waits for a collective
  kMark,      // a moment that the walk names
  kElse,      // an operator outside of all regions begins or ends
  kRead,      // the operator that began last reads the value's first storage, and is not of the value's region
  kRetain,    // a backward pass comes to the region whose graph stays
  kRetained,  // ... and is over there: what ran again for it goes
};

struct MemoryEvent {
  int32_t tape;  // kNobody: the program's
  Happened what;
  int32_t index;
  int64_t before_bytes;  // the most in use since the event before
  int64_t bytes;         // in use now
  // What ran since the last event that asked: operators and replays that begin or end (outside of regions: begin), each
  // node that ran again, waits and marks do.
  LaunchTimes launched = {};
  int64_t requests = 0;  // of the allocator until now: blocks taken, and blocks given back
};

// A storage of a value (or below 0: of what the region was given) began at an address before event number `event`.
struct MemoryPlace {
  int32_t tape, value;
  uint64_t address;
  size_t event;
};

class MemoryLog {
 public:
  static constexpr int32_t kNobody = -1;

  explicit MemoryLog(c10::Device device) : device_(device) {}

  // A number for a further tape.
  int32_t add_tape();
  void note(int32_t tape, Happened what, int32_t index);
  // What happens from here on is none of the step's. Tapes may live on, as graphs do that stay: noting begins the
  // statistics of the device anew, which are somebody else's now.
  void stop();
  // From now on the death of the value's storage is an event, and so is who reads it outside of its region.
  void follow(int32_t tape, int32_t value, const c10::Storage& storage);
  // An operator of another region, or of none, reads the storage.
  void read(const c10::Storage& storage);
  std::vector<MemoryEvent> events() const;
  std::vector<MemoryPlace> places() const;  // of all that was followed
  // By event, and last of all what has run since, for which the device is asked once; nothing where it does not tell.
  std::optional<std::vector<LaunchTimes>> launches();

 private:
  struct Followed {
    int32_t tape, value;
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
  };

  const c10::Device device_;
  mutable std::mutex mutex_;  // recording holds no other
  int32_t tapes_ = 0;
  std::vector<Followed> followed_;
  std::vector<MemoryEvent> events_;
  std::vector<MemoryPlace> places_;
  bool stopped_ = false;
  bool launches_told_ = true;
  std::optional<LaunchTimes> since_;
};

}  // namespace bayplan::recompute

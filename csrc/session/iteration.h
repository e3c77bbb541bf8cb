// What a session tells of one iteration, and how one is told to work.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "follow/features.h"
#include "session/policy.h"
#include "session/timeline.h"
#include "storage/store.h"

namespace bayplan::swap {

// When the block of a storage that leaves may be used again.
enum class RecordStream : uint8_t {
  kCustom,   // at the policy's release if the copy is done, else when memory is needed, behind an event
  kPrinted,  // at the policy's release in any case, behind an event: SmartSwap §6.2
  kTorch,    // when PyTorch's allocator finds the copy done: `record_stream`
};

struct SessionOptions {
  uint64_t least_bytes = 4096;  // smaller storages are not looked at
  Matching matching = Matching::kFeatures;
  bool guard = true;  // bring back what an operator touches, swap passively; without it a policy is on its own
  RecordStream record_stream = RecordStream::kCustom;
};

// A storage seen at an operator, in a way that finds it again in a later iteration.
struct Sighting {
  uint32_t op;
  uint32_t position;  // index among the sightings at that operator
  uintptr_t storage;  // address of its StorageImpl
  uint64_t key;
  uint32_t ordinal;
  bool result;          // no operator has used it yet in this iteration
  uint64_t pass_bytes;  // the iteration's by then
};

struct SessionCounts {
  uint64_t matched = 0;        // targets that were sighted
  uint64_t refused = 0;        // of these, that could not leave
  uint64_t spared = 0;         // of these, that the policy needs in larger iterations only
  uint64_t kept = 0;           // planned swap-ins of what had not been released, as nobody needed its memory
  uint64_t in_time = 0;        // used when their planned swap-in was on its way or done
  uint64_t postponed = 0;      // planned swap-ins that found no memory
  uint64_t missed_events = 0;  // targets of events whose storage was not where the event supposes it
  uint64_t passive = 0;        // storages swapped out because memory was short
  uint64_t passive_bytes = 0;
  uint64_t relieved = 0;  // blocks released because memory was short
  uint64_t recalled = 0;  // planned swap-ins undone because memory was short
  uint64_t moved = 0;     // blocks put elsewhere in the arena
  uint64_t moved_bytes = 0;
  uint64_t again = 0;    // times that an operator ran once more, as it had run out of memory
  uint64_t failed = 0;   // requests that nothing could relieve
  uint64_t retries = 0;  // requests for which the allocator gave its cache back to the driver
  StoreCounts store;     // `early` are counted as `in_time`
};

// An iteration's time on the device, and where it went if that was measured.
struct IterationClock {
  EventPtr begin, end;
  std::shared_ptr<Timeline> timeline;
};

struct Iteration {
  std::vector<uint32_t> operators;
  std::vector<Phase> phases;
  std::vector<Sighting> sightings;
  std::vector<uint32_t> reads;  // operators at which the host waited for the device, where sightings are listed
  SessionCounts counts;
  uint64_t unmatched = 0;
  uint64_t peak_bytes = 0;           // on the device, since the session began
  uint64_t reserved_peak_bytes = 0;  // the allocator's, what it caches included
  uint64_t host_peak_bytes = 0;
  bool backward = false;
  uint64_t forward_bytes = 0;  // of what each operator of the forward pass uses, summed; older storages excepted
  uint64_t pass_bytes = 0;     // the same since the latest backward pass, where there are several
  IterationClock clock;
};

}  // namespace bayplan::swap

// Recognises storages: gives each the features by which it is found again in the next iteration (follow/features.h),
// and tells what the policy wants of those that are seen.
#pragma once

#include <c10/util/flat_hash_map.h>

#include <cstdint>
#include <vector>

#include "follow/features.h"
#include "session/state.h"
#include "session/streams.h"
#include "session/transfers.h"

namespace bayplan::swap {

class Sightings {
 public:
  Sightings(SessionState& state, Streams& streams, Transfers& transfers)
      : state_(state), streams_(streams), transfers_(transfers) {}

  void set_ranks(const std::vector<uint32_t>& by_frequency) { ranks_.set(by_frequency); }
  // Whether the rest of the iteration that runs lists its sightings.
  void record(bool on) { recording_ = on; }
  bool recording() const { return recording_; }
  // The next iteration begins.
  void restart();

  // Of the operator that runs: its arguments, when it begins,
  void see_arguments(const at::RecordFunction& frame);
  // and what it or an operator inside it returns. Storages that no operator has used yet count, such as a mask that
  // dropout keeps; what an operator allocates and frees again is seen too: it dies at once.
  void see_results(const at::RecordFunction& frame);

 private:
  Tracked& refreshed(const c10::Storage& storage);
  void see_argument(const at::Tensor& tensor, bool written);
  void see_result(const at::Tensor& tensor);
  void note(const c10::Storage& storage, uint64_t key, bool result);

  SessionState& state_;
  Streams& streams_;
  Transfers& transfers_;
  Ranks ranks_;
  bool recording_ = false;
  uint32_t position_ = 0;                        // sightings at the operator that runs
  ska::flat_hash_map<uint64_t, uint32_t> seen_;  // by key, while sightings are recorded
};

}  // namespace bayplan::swap

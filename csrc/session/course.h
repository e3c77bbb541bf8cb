// Where in the iteration that a policy was made from the running one is.
//
// Operators and lookalikes that are counted from the iteration's begin have other numbers behind everything that comes
// or goes, as an expert does that gets no tokens. So they are counted from the latest *landmark* instead: the first use
// of a parameter in the forward or in the backward pass, or the first operator of either. Parameters are there in every
// iteration, at the same place of the program.
#pragma once

#include <ATen/record_function.h>
#include <c10/core/Storage.h>
#include <c10/util/flat_hash_map.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "follow/features.h"
#include "follow/follower.h"

namespace bayplan::swap {

// The first use of a storage in operators of one phase in one turn; storage 0: their first operator. A turn is a
// forward pass and all that follows until the next one begins.
struct Landmark {
  uintptr_t storage;  // address of its StorageImpl
  Phase phase;
  uint32_t turn;
  uint32_t op = 0;  // where it was met
};

// So many operators, or lookalikes, after a landmark.
struct Spot {
  uint32_t landmark = 0;
  uint32_t since = 0;
};

class Course {
 public:
  Course() = default;
  // Landmarks in the order of the iteration.
  explicit Course(const std::vector<Landmark>& landmarks);

  // Keeps hold of the storages, so that no other gets the address of one; without `weak` that one is not there.
  void hold(uintptr_t storage, std::optional<WeakStorage> weak);
  // The next iteration begins: on course if all storages live.
  void restart();
  // Whether there is a course to follow.
  bool followed() const { return followed_; }
  // The operator begins.
  void follow(c10::Device device, Phase phase, const at::RecordFunction& frame);

  uint32_t landmark() const { return landmark_; }
  uint32_t since() const { return since_; }
  // Whether the operator that runs is at the place or behind it; a landmark that does not come is passed with the next.
  bool reached(const Spot& spot) const {
    return spot.landmark < landmark_ || (spot.landmark == landmark_ && spot.since <= since_);
  }

 private:
  void meet(uintptr_t storage, Phase phase);

  struct Turn {
    uint32_t turn;
    Phase phase;
    uint32_t number;  // of the landmark
  };
  ska::flat_hash_map<uintptr_t, std::vector<Turn>> landmarks_;
  std::vector<WeakStorage> held_;
  bool whole_ = true;  // each storage was found
  bool followed_ = false;
  bool backward_ = false;  // seen in this turn
  bool begun_ = false;     // a landmark was met
  uint32_t turn_ = 0;
  uint32_t landmark_ = 0;
  uint32_t since_ = 0;
};

}  // namespace bayplan::swap

// What a session does while a training loop runs: which tensors leave when they are sighted, and before which operators
// blocks are released and tensors return.
#pragma once

#include <c10/util/flat_hash_map.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "follow/features.h"
#include "session/course.h"
#include "session/reads.h"
#include "storage/action_kind.h"

namespace bayplan::swap {

// How tensors and operators of the policy are found in a later iteration.
enum class Matching : uint8_t {
  kFeatures,  // tensors by their features, operators by phase, name and count
  kIndex,     // both by number in the iteration: Capuchin's way, which a changed sequence misleads
};

// A tensor that leaves after the operator that it is sighted at.
struct Target {
  std::string label;  // for messages
  uint64_t bytes;
  uint64_t key;
  uint32_t ordinal;
  uint32_t op;        // by index: the operator,
  uint32_t position;  // and the index of the sighting there
  bool result;        // sighted as a result, before any operator used it
  // It leaves where the forward pass has worked on so many bytes by then (`Iteration::pass_bytes`): in smaller
  // iterations what is needed leaves without it.
  uint64_t least_pass_bytes = 0;
  Spot spot = {};  // its landmark, and how many sightings with its key come after that before it
  // Until that operator it may wait for the host to read from the device first (reads.h).
  uint32_t latest_op = 0;
  // Of what outlives iterations and waits through most of each, as an optimizer's states do: the address of its
  // StorageImpl. It leaves at an event, and no sighting of it is looked for.
  uintptr_t storage = 0;
};

// A place in the iteration: the `ordinal`-th operator of that phase and id, or, by index, the `op`-th of all.
struct Anchor {
  Phase phase;
  uint32_t id;
  uint32_t ordinal;
  uint32_t op;
};

// Before the operator with that anchor.
struct Event {
  Anchor anchor;
  ActionKind kind;  // swap-out of targets that are told by their storage, release or swap-in
  std::vector<uint32_t> targets;
  Spot spot = {};  // its landmark, and how many operators after that
};

struct Policy {
  std::vector<Target> targets;
  std::vector<Event> events;
  std::vector<std::pair<uint32_t, uint32_t>> arrivals;  // target, operator of its first use after: without the guard
  // Blocks are released once memory is asked for, not when the policy says: it is made for the largest iteration of
  // its kind, and in smaller ones what nobody asks for need not come back.
  bool on_demand = false;
  // By which spots are told, in the order of the iteration; without any, or where one is gone, operators and
  // lookalikes are counted from the iteration's begin.
  std::vector<Landmark> landmarks = {};
  Pace pace = {};
};

// A policy with the tables that finding needs; counts anew in each iteration.
class Finder {
 public:
  Finder(Policy policy, Matching matching);

  void restart();
  // The landmarks' storages are looked up.
  Course& course() { return course_; }
  // The operator begins.
  void follow(c10::Device device, Phase phase, const at::RecordFunction& frame) {
    course_.follow(device, phase, frame);
  }
  // Events before the operator, in their order; empty where there are none. To be asked once for each operator.
  const std::vector<uint32_t>& events(const Anchor& anchor);
  // Which operator of the iteration that the policy was made from this one corresponds to.
  uint32_t place_of(const Anchor& anchor) const;
  // The target of a sighting, if it is one. To be asked once for each sighting.
  std::optional<uint32_t> target(uint64_t key, uint32_t op, uint32_t position);
  const std::vector<uint32_t>& arrivals(uint32_t op) const;

  const Policy& policy() const { return policy_; }
  // Whether some target is sighted as a result.
  bool needs_results() const { return needs_results_; }
  Matching matching() const { return matching_; }

 private:
  struct Lookalikes {
    uint32_t seen = 0;
    std::vector<std::optional<uint32_t>> targets;  // by ordinal

    void put(uint32_t ordinal, uint32_t target) {
      if (targets.size() <= ordinal) targets.resize(ordinal + 1);
      targets[ordinal] = target;
    }
  };
  using ByKey = ska::flat_hash_map<uint64_t, Lookalikes>;
  uint64_t place(const Anchor& anchor) const;
  static std::optional<uint32_t> next_alike(ByKey& targets, uint64_t key);

  Policy policy_;
  Matching matching_;
  bool needs_results_ = false;
  ska::flat_hash_map<uint64_t, std::vector<uint32_t>> events_;
  ByKey by_key_;
  ByKey by_spot_;                // by key and landmark
  std::vector<uint32_t> order_;  // of events, by spot
  size_t next_ = 0;              // of these: the first one not reached yet
  std::vector<uint32_t> due_;
  Course course_;
  ska::flat_hash_map<uint64_t, uint32_t> by_index_;
  ska::flat_hash_map<uint32_t, std::vector<uint32_t>> arrivals_;
};

}  // namespace bayplan::swap

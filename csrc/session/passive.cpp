#include "session/passive.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "follow/frames.h"

namespace bayplan::swap {
namespace {

constexpr uint64_t kRecent = 8;  // operators; who took a tensor's address by hand should be done with it by then

// How far a size is from what is missing. All that are enough and at most twice that count as equal.
uint64_t distance(uint64_t bytes, uint64_t missing) {
  if (bytes < missing) return missing - bytes;
  return bytes / 2 <= missing ? 0 : bytes - missing;
}

}  // namespace

// Lines 3-5 and 9-12 of Algorithm 3. Line 6, defragmenting, is the allocator's own: the simulated device has nothing to
// defragment, CUDA's has expandable segments.
bool PassiveSwaps::relieve(uint64_t missing, unsigned attempt, const Pins& pins) {
  if (attempt == 0) {
    const uint64_t released = transfers_.release_leaving(missing);
    state_.counts.relieved += released;
    return released > 0;
  }
  const bool alone = !state_.options.guard && transfers_.has_policy();  // for comparison: no net under the policy
  if (transfers_.may_wait() || alone) return false;
  const bool may_leave = !in_compiled_code();
  const bool freed = (may_leave && swap_out(missing, pins, /*residents=*/false)) || transfers_.recall(pins) ||
                     (may_leave && swap_out(missing, pins, /*residents=*/true));
  if (!freed) ++state_.counts.failed;
  return freed;
}

// What was used just now stays, if anything else can leave.
bool PassiveSwaps::swap_out(uint64_t missing, const Pins& pins, bool residents) {
  const uint64_t old = state_.now > kRecent ? state_.now - kRecent : 0;
  for (const uint64_t newest : {old, std::numeric_limits<uint64_t>::max()}) {
    const auto storage = choose(missing, pins, newest, residents);
    if (storage == nullptr) continue;
    const EngineWork work = state_.work();
    streams_.leave_behind(*storage);
    state_.store.park(*storage);
    ++state_.counts.passive;
    state_.counts.passive_bytes += storage->nbytes();
    return true;
  }
  return false;
}

// The one whose size is closest to what is missing; among equals the one that was not used for longest: activations
// that wait longest for the backward pass, in either pass. Of those last used together the one that was first used
// earlier, so that addresses decide as little as possible.
StoragePtr PassiveSwaps::choose(uint64_t missing, const Pins& pins, uint64_t newest, bool residents) const {
  const Tracked* best = nullptr;
  std::tuple<uint64_t, uint64_t, uint64_t> least;
  for (const auto& [address, tracked] : state_.tracker) {
    if (tracked.resident != residents || tracked.last_use > newest || !may_leave(tracked, *address, pins)) continue;
    const std::tuple order{distance(address->nbytes(), missing), tracked.last_use, tracked.first_use};
    if (best != nullptr && order >= least) continue;
    best = &tracked;
    least = order;
  }
  return best == nullptr ? StoragePtr() : best->storage.lock();
}

// Nothing that an operator which runs now may hold the address of: its arguments (pinned), and what it made itself.
bool PassiveSwaps::may_leave(const Tracked& tracked, c10::StorageImpl& storage, const Pins& pins) const {
  if (state_.must_stay(tracked)) return false;
  if (state_.running.frame != nullptr && tracked.first_use >= state_.running.number) return false;
  if (tracked.storage.use_count() == 0 || storage.device() != state_.device) return false;
  return Store::why_it_stays(storage) == nullptr && std::find(pins.begin(), pins.end(), &storage) == pins.end();
}

uint64_t PassiveSwaps::largest_bytes() const {
  uint64_t largest = 0;
  for (const auto& [address, tracked] : state_.tracker) {
    if (tracked.storage.use_count() > 0) largest = std::max<uint64_t>(largest, address->nbytes());
  }
  return largest;
}

}  // namespace bayplan::swap

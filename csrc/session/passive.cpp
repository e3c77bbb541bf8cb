#include "session/passive.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "follow/frames.h"
#include "follow/relief.h"
#include "session/arena.h"

namespace bayplan::swap {
namespace {

constexpr uint64_t kScattered = 50;               // part of the arena: less that is free elsewhere is not worth a copy
constexpr uint64_t kLeast = uint64_t{256} << 10;  // less takes as long: launching both copies, and their latency
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
    const uint64_t released = release_leaving(missing);
    state_.counts.relieved += released;
    return released > 0;
  }
  if (stands_still()) return false;
  const bool freed = swap_out_any(missing, pins);
  if (!freed) ++state_.counts.failed;
  return freed;
}

// While a planned swap-in asks; and, for comparison, where a session is to have no net under its policy.
bool PassiveSwaps::stands_still() const {
  return transfers_.may_wait() || (!state_.options.guard && transfers_.has_policy());
}

uint64_t PassiveSwaps::not_recent() const { return state_.now > kRecent ? state_.now - kRecent : 0; }

bool PassiveSwaps::swap_out_any(uint64_t missing, const Pins& pins) {
  const bool may_leave = !in_compiled_code(state_.device);
  const auto may_go = [&](const Tracked& tracked, c10::StorageImpl& storage) {
    return this->may_leave(tracked, storage, pins);
  };
  return (may_leave && transfers_.hurry(may_go)) || (may_leave && swap_out(missing, pins, /*residents=*/false)) ||
         transfers_.recall(pins) ||
         (may_leave && (swap_out(missing, pins, /*residents=*/true) || swap_out_for_most(pins, /*residents=*/false) ||
                        swap_out_for_most(pins, /*residents=*/true)));
}

// Where nothing makes room for as much as may be asked for: as much room as there can be.
bool PassiveSwaps::swap_out_for_most(const Pins& pins, bool residents) {
  if (!state_.arena.there()) return false;
  const Layout layout(state_.arena, state_.tracker);
  const auto may_go = [&](const Span& span) {
    return (residents || !span.tracked->resident) && may_leave(*span.tracked, *span.storage, pins);
  };
  const uint64_t widest = layout.widest(may_go);
  const auto window = widest > layout.largest_gap() ? layout.window(widest, may_go) : std::vector<Span>();
  if (!window.empty()) send_away(*window.front().storage);
  return !window.empty();
}

// In an arena bytes are not enough: they have to lie beside each other.
uint64_t PassiveSwaps::release_leaving(uint64_t missing) {
  if (!state_.arena.there()) return transfers_.release_leaving(missing);
  uint64_t released = 0;
  while (Layout(state_.arena, state_.tracker).largest_gap() < missing && transfers_.release_leaving(1) > 0) ++released;
  return released;
}

bool PassiveSwaps::make_room(uint64_t bytes, const Pins& pins, bool others_leave, size_t fixed) {
  const uint64_t block = std::min(block_of(bytes), state_.arena.bytes());
  const auto fits = [&] { return Layout(state_.arena, state_.tracker).largest_gap() >= block; };
  if (fits()) return true;
  state_.counts.relieved += release_leaving(block);
  const Pins known(pins.begin(), pins.begin() + static_cast<std::ptrdiff_t>(std::min(fixed, pins.size())));
  if (!fits() && gather(block, known)) return true;
  while (!fits()) {
    if (!others_leave || is_held_up()) return false;
    if (swap_out_any(block, pins)) continue;
    if (make_room_around(block, pins, known)) return true;
    put_together(pins, known.size());
    return fits();
  }
  return true;
}

// Another thread may hold any address while it is inside an operator.
bool PassiveSwaps::is_held_up() const {
  const bool held_up = others_compute(state_.device);
  state_.held_up = state_.held_up || held_up;
  return held_up;
}

// No neighbours may leave that make room together, as what the operator itself is about to use lies between them: it
// lay where it lay. So the others leave, whoever they are, those that nobody used for longest first, until moving what
// is left makes room.
bool PassiveSwaps::make_room_around(uint64_t bytes, const Pins& pins, const Pins& known) {
  std::vector<Span> others;
  const Layout layout(state_.arena, state_.tracker);
  uint64_t room = layout.free_bytes();
  for (const Span& span : layout.spans()) {
    if (span.storage == nullptr || !(span.leaving || may_leave(*span.tracked, *span.storage, pins))) continue;
    room += span.end - span.begin;
    others.push_back(span);
  }
  if (room < bytes) return false;
  std::stable_sort(others.begin(), others.end(),
                   [](const Span& one, const Span& other) { return one.tracked->last_use < other.tracked->last_use; });
  for (const Span& span : others) {
    send_away(*span.storage);
    if (Layout(state_.arena, state_.tracker).largest_gap() >= bytes || gather(bytes, known)) return true;
  }
  return false;
}

// Nothing more may leave but what the operator itself is about to use, and no move makes room: that leaves and comes
// back at once, to the lowest place, which costs twice its time on the link and is all that is left to be done. Whoever
// was sent away comes back, whatever happens on the way.
void PassiveSwaps::put_together(const Pins& pins, size_t fixed) {
  const Layout layout(state_.arena, state_.tracker);
  if (fixed >= pins.size() || layout.free_bytes() - layout.largest_gap() < state_.arena.bytes() / kScattered) return;
  const Pins known(pins.begin(), pins.begin() + static_cast<std::ptrdiff_t>(fixed));
  const auto own = [&](const Span& span) {
    return std::find(pins.begin() + static_cast<std::ptrdiff_t>(fixed), pins.end(), span.storage.get()) != pins.end();
  };
  std::vector<StoragePtr> gone;
  try {
    for (const Span& span : layout.spans()) {
      if (span.leaving || !own(span) || !may_leave(*span.tracked, *span.storage, known)) continue;
      gone.push_back(span.storage);
      send_away(*span.storage);
    }
  } catch (const HostMemoryShort&) {
    state_.keep_error(std::current_exception());
  }
  for (const StoragePtr& storage : gone) streams_.bring_back(*storage);
}

// Another thread may hold the address of any block while it is inside an operator.
bool PassiveSwaps::gather(uint64_t bytes, const Pins& pins) {
  if (!state_.arena.there() || others_compute(state_.device) || in_compiled_code(state_.device)) return false;
  return moves_.gather(bytes, [&](const Span& span) { return may_move(*span.tracked, *span.storage, pins); });
}

// What was used just now stays, if anything else can leave.
bool PassiveSwaps::swap_out(uint64_t missing, const Pins& pins, bool residents) {
  for (const uint64_t newest : {not_recent(), std::numeric_limits<uint64_t>::max()}) {
    const auto storage = state_.arena.there() ? choose_by_address(missing, pins, newest, residents)
                                              : choose(std::max(missing, kLeast), pins, newest, residents);
    if (storage == nullptr) continue;
    send_away(*storage);
    return true;
  }
  return false;
}

void PassiveSwaps::send_away(c10::StorageImpl& storage) {
  if (Store::entry_of(storage) != nullptr) {
    transfers_.release_block(storage);
    ++state_.counts.relieved;
    return;
  }
  const EngineWork work = state_.work();
  streams_.leave_behind(storage);
  state_.store.park(storage);
  ++state_.counts.passive;
  state_.counts.passive_bytes += storage.nbytes();
}

// One of those neighbours that make room for the block together; the next call finds the others.
StoragePtr PassiveSwaps::choose_by_address(uint64_t bytes, const Pins& pins, uint64_t newest, bool residents) const {
  const auto may_go = [&](const Span& span) {
    const Tracked& tracked = *span.tracked;
    return (residents || !tracked.resident) && tracked.last_use <= newest && may_leave(tracked, *span.storage, pins);
  };
  const auto window = Layout(state_.arena, state_.tracker).window(bytes, may_go);
  return window.empty() ? StoragePtr() : window.front().storage;
}

// The one whose size is closest to what is missing; among equals the one that was not used for longest: activations
// that wait longest for the backward pass, in either pass. Of those last used together the one that was first used
// earlier, or stood first among one operator's arguments: addresses decide nothing.
StoragePtr PassiveSwaps::choose(uint64_t missing, const Pins& pins, uint64_t newest, bool residents) const {
  const Tracked* best = nullptr;
  std::tuple<uint64_t, uint64_t, uint64_t, uint64_t> least;
  for (const auto& [address, tracked] : state_.tracker) {
    if (tracked.resident != residents || tracked.last_use > newest || !may_leave(tracked, *address, pins)) continue;
    const std::tuple order{distance(address->nbytes(), missing), tracked.last_use, tracked.first_use, tracked.order};
    if (best != nullptr && order >= least) continue;
    best = &tracked;
    least = order;
  }
  return best == nullptr ? StoragePtr() : best->storage.lock();
}

// Nothing that an operator which runs now may hold the address of: its arguments (pinned), and what it made itself.
bool PassiveSwaps::may_move(const Tracked& tracked, c10::StorageImpl& storage, const Pins& pins) const {
  if (state_.must_stay(tracked)) return false;
  if (state_.running.frame != nullptr && tracked.first_use >= state_.running.number) return false;
  if (tracked.storage.use_count() == 0 || storage.device() != state_.device) return false;
  if (Store::why_it_stays(storage) != nullptr) return false;
  return std::find(pins.begin(), pins.end(), &storage) == pins.end();
}

bool PassiveSwaps::may_leave(const Tracked& tracked, c10::StorageImpl& storage, const Pins& pins) const {
  return may_move(tracked, storage, pins) && state_.store.host().can_serve_now(storage.nbytes());
}

uint64_t PassiveSwaps::largest_bytes() const {
  uint64_t largest = 0;
  for (const auto& [address, tracked] : state_.tracker) {
    if (tracked.storage.use_count() > 0) largest = std::max<uint64_t>(largest, address->nbytes());
  }
  return largest;
}

PoolBytes PassiveSwaps::movable(const Pins& pins) const {
  constexpr uint64_t kSmall = uint64_t{1} << 20;
  PoolBytes found;
  for (const auto& [address, tracked] : state_.tracker) {
    const auto storage = tracked.storage.lock();
    if (storage == nullptr || storage->device() != state_.device) continue;
    const Entry* entry = Store::entry_of(*storage);
    const bool moves = entry == nullptr ? may_move(tracked, *storage, pins)
                                        : entry->place == Place::kLeaving || entry->place == Place::kComing;
    if (!moves) continue;
    const uint64_t bytes = block_of(storage->nbytes());
    (bytes <= kSmall ? found.small : found.large) += bytes;
  }
  return found;
}

}  // namespace bayplan::swap

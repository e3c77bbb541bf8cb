// An arena that small requests find no room beside goes back to the driver for as long as they need it. The first time
// the allocator does that itself, in a retry; what was learnt of the operator is used when one like it comes again.
#include <c10/util/ScopeExit.h>

#include <algorithm>

#include "follow/frames.h"
#include "session/session.h"

namespace bayplan::swap {
namespace {

// What the latest frame's arguments that are out will ask for, of such sizes.
template <typename Counts>
SmallRequests::Way absent(const OpenFrames& own, const Counts& counts) {
  SmallRequests::Way way;
  Pins pins(own.pins().begin() + static_cast<std::ptrdiff_t>(own.first()), own.pins().end());
  std::sort(pins.begin(), pins.end());
  pins.erase(std::unique(pins.begin(), pins.end()), pins.end());
  for (c10::StorageImpl* pin : pins) {
    const Entry* entry = Store::entry_of(*pin);
    if (entry != nullptr && entry->place == Place::kAway && counts(pin->nbytes()))
      way.push_back({pin->nbytes(), way.size()});
  }
  return way;
}

}  // namespace

Arguments arguments_of(const OpenFrames& own) {
  Arguments given;
  for (size_t place = own.first(); place < own.pins().size(); ++place) {
    const uint64_t bytes = own.pins()[place]->nbytes();
    given.bytes += bytes;
    given.largest = std::max(given.largest, bytes);
  }
  return given;
}

// Before its arguments come back: an operator for which the allocator gave its cache back, or would have to, gets the
// arena's bytes without asking; one that needs the arena gets that.
void Session::make_room_for_arguments(const at::RecordFunction& frame, const OpenFrames& own) {
  const Lock held(store_.lock);
  const RunningOperator& running = state_.running;
  if (running.frame != &frame || !budget_.has_value()) return;
  const Arguments given = arguments_of(own);
  if (grounds_.lent()) {
    if (wants_arena(running.info->id, given, own) && arena_may_change()) take_back_arena(own);
  } else if (may_lend(running.info->id, given, own) &&
             (needs_.has_met(Shortage::kRetry, running.info->id, given) ||
              !small_.make_room(absent(own, SmallRequests::is_small), own.pins(), /*others_leave=*/true))) {
    grounds_.lend(own.pins());
  }
  if (others_compute(device_) && lacks_room_for_absent(own)) state_.held_up = true;
}

// Whether others may have to leave for what comes back.
bool Session::lacks_room_for_absent(const OpenFrames& own) {
  const auto is_large = [](uint64_t bytes) { return !SmallRequests::is_small(bytes); };
  const OperatorNeeds::Way small = absent(own, SmallRequests::is_small), large = absent(own, is_large);
  if (!small_.make_room(small, own.pins(), /*others_leave=*/false)) return true;
  if (state_.arena.there()) return !Layout(state_.arena, state_.tracker).serves(large);
  asked_ = 0;
  for (const Requests::Event& event : large) asked_ += block_of(event.bytes);
  const auto over = c10::make_scope_exit([this] { asked_ = 0; });
  return asked_ > 0 && shortage(1) > 0;
}

// Whether the operator needs no arena, and nobody a block of it.
bool Session::may_lend(uint32_t id, const Arguments& given, const OpenFrames& own) {
  if (!state_.arena.there() || state_.arena.bytes() > kFewSegments || needs_.asks_large(id, given)) return false;
  const auto is_large = [](const c10::StorageImpl* pin) { return !SmallRequests::is_small(pin->nbytes()); };
  return std::none_of(own.pins().begin(), own.pins().end(), is_large) && arena_may_change();
}

// The operator has not begun, so that its arguments may leave, too, where they lie in the way.
void Session::take_back_arena(const OpenFrames& own) {
  const auto first = own.pins().begin() + static_cast<std::ptrdiff_t>(own.first());
  const Pins known(own.pins().begin(), first), arguments(first, own.pins().end());
  grounds_.take_back(*budget_, known);
  for (c10::StorageImpl* storage : arguments) streams_.bring_back(*storage);
}

// An operator that has never run may ask for some four times its largest argument; one without arguments for anything.
bool Session::wants_arena(uint32_t id, const Arguments& given, const OpenFrames& own) const {
  for (size_t place = own.first(); place < own.pins().size(); ++place) {
    c10::StorageImpl& pin = *own.pins()[place];
    const Entry* entry = Store::entry_of(pin);
    if (entry != nullptr && entry->place != Place::kLeaving && !SmallRequests::is_small(pin.nbytes())) return true;
  }
  if (needs_.knows(id, given)) return needs_.asks_large(id, given);
  return given.bytes == 0 || !SmallRequests::is_small(4 * given.largest);
}

// The allocator found no block for what the operator asked for, and gave its cache back. If that took the arena, and
// the operator needs none, the others have its bytes until somebody needs it.
void Session::learn_retry() {
  const RunningOperator& running = state_.running;
  if (again_number_ == running.number) needs_.note(Shortage::kAgain, running.info->id, running.given);
  if (!std::exchange(asked_in_operator_, false) || running.before == 0) return;
  if (static_cast<uint64_t>(memory().num_alloc_retries) == retries_before_) return;
  needs_.note(Shortage::kRetry, running.info->id, running.given);
  if (SmallRequests::is_small(running.given.largest) && !needs_.asks_large(running.info->id, running.given))
    grounds_.note_lent();
}

// The last resort of a small request that nothing small can leave for: all that lies in the arena leaves, as the
// allocator gives back what is whole before it refuses a request. Of a large arena only where it is sure that the
// request is small.
bool Session::empty_arena(const Pins& pins) {
  const Arena& arena = state_.arena;
  if (!arena.there() || in_compiled_code(device_) || (!small_.certain() && arena.bytes() > kFewSegments)) return false;
  const Layout layout(arena, state_.tracker);
  uint64_t known = 0;
  for (const Span& span : layout.spans()) {
    if (span.storage == nullptr || !(span.leaving || passive_.may_leave(*span.tracked, *span.storage, pins)))
      return false;
    known += span.end - span.begin;
  }
  if (known < grounds_.large_in_use()) return false;  // somebody has blocks that nobody knows
  for (const Span& span : layout.spans()) {
    if (!span.leaving && !passive_.may_leave(*span.tracked, *span.storage, pins)) return true;  // the host is full
    passive_.send_away(*span.storage);
  }
  small_.expect_cache();
  return true;
}

// All that may lie in an arena of few segments, once small requests may need its bytes; and all that lies in few small
// segments where there is no arena, as a large request may need these.
uint64_t Session::leaving_bytes() const {
  if (grounds_.only_small() && budget_.has_value() && *budget_ <= kFewSegments) return small_.in_use();
  return state_.arena.there() && state_.arena.bytes() <= kFewSegments && small_.is_short() ? state_.arena.bytes() : 0;
}

// The same for a large one: whole segments of small ones.
bool Session::empty_small(const Pins& pins) {
  return state_.arena.there() && state_.arena.bytes() <= kFewSegments && small_.send_all_away(pins);
}

}  // namespace bayplan::swap

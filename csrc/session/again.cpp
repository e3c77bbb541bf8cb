// What an operator had asked for until it ran out of memory is known now, and it runs again (follow/again.h): once all
// has left that may, and its arguments lie where they leave room.
#include "follow/again.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "follow/frames.h"
#include "follow/relief.h"
#include "session/arena.h"
#include "session/session.h"

namespace bayplan::swap {

// In an iteration whose operators are not known yet (the first, or one that has others), or beside other threads'.
// The operator that begins now has passed the dispatcher already: only what it calls would run again.
void Session::protect(bool on) {
  if (on && !runs_again()) protected_ = state_.now;
  run_again(on && grounds_.segments() != Segments::kNone && state_.options.guard);
}

// Each time it has to have got further than the last, unless other threads were inside operators: while they are, what
// it lacks cannot leave, so it waits for them.
bool Session::make_place_again(const c10::OperatorName& name) {
  OpenFrames& own = OpenFrames::of_thread(device_);
  const at::RecordFunction* frame = own.outermost();
  if (frame == nullptr) return false;
  const Requests* requests = own.requests_of(*frame);
  const OperatorNeeds::Way way = requests == nullptr ? OperatorNeeds::Way() : requests->until_refused();
  const ThreadPlace& thread = thread_place(device_);
  const std::function<void()> more = more_;
  more();
  const bool shared = others_compute(thread.device);
  const StoreLock held = lock_alone(thread.device);
  if (!thread.is_current()) return false;  // the session has stopped or paused meanwhile, and may be gone
  const RunningOperator& running = state_.running;
  if (!is_active() || !budget_.has_value() || running.frame != frame) return false;
  if (running.number <= protected_ || running.before == 0 || running.info->name != c10::toString(name)) return false;
  if (passive_.stands_still() || in_compiled_code(device_) || !arena_may_change()) return false;
  if (way.empty() || (!shared && again_number_ == running.number && way.size() <= again_seen_)) return false;
  again_number_ = running.number;
  again_seen_ = way.size();
  const bool small = SmallRequests::is_small(way.back().bytes);
  const auto told = std::make_tuple(kept_, least_bytes_, latest_);  // of the operator's request, not of the engine's
  if (!make_place_for({way}, own.first_of(*frame), small) && !small) {
    std::tie(kept_, least_bytes_, latest_) = told;
    return false;
  }
  ++state_.counts.again;
  state_.running.before = given_out();
  own.see_requests(*frame);
  return true;
}

// The same of one that had to run again, before it begins. It may leave what is free in pieces that serve it, in which
// nothing has to be done.
void Session::make_place_before(const std::vector<OperatorNeeds::Way>& ways, const OpenFrames& own) {
  const Layout layout(state_.arena, state_.tracker);
  const bool serves = std::all_of(ways.begin(), ways.end(), [&](const auto& way) { return layout.serves(way); });
  if (!serves && !passive_.stands_still() && !in_compiled_code(device_) && arena_may_change())
    make_place_for(ways, own.first(), /*small=*/false);
}

// All that may leave does, and the arena is as large as the arguments (the pins from `first` on) and these requests
// need. The arguments come back side by side, behind as much as lets the others fit: else a block that goes early may
// leave a hole that nobody can use. Whether all find a place.
bool Session::make_place_for(const std::vector<OperatorNeeds::Way>& ways, size_t first, bool small) {
  const Pins& pins = OpenFrames::of_thread(device_).pins();
  const auto behind = pins.begin() + static_cast<std::ptrdiff_t>(first);
  const Pins known(pins.begin(), behind), arguments(behind, pins.end());
  const uint64_t given = distinct_bytes(arguments, 0, /*large_only=*/true);
  uint64_t least = given, largest = 0;
  for (const auto& way : ways) {
    least = std::max(least, given + large_peak(way));
    for (const Requests::Event& event : way) largest = std::max(largest, block_of(event.bytes));
  }
  for (const uint64_t wanted : {least, least + largest}) {  // the second where pieces are left in which none fits
    if (wanted > *budget_) return false;
    grounds_.begin_anew(wanted > state_.arena.bytes() ? wanted : 0, small, *budget_, known);
    {
      const c10::DataPtr kept = grounds_.keep_before(given, ways);
      for (c10::StorageImpl* storage : arguments) streams_.bring_back(*storage);
    }
    if (!state_.arena.there()) return false;
    const Layout layout(state_.arena, state_.tracker);
    if (std::all_of(ways.begin(), ways.end(), [&](const auto& way) { return layout.serves(way); })) return true;
  }
  return false;
}

}  // namespace bayplan::swap

// How a session answers requests for memory, and makes room before there are any.
// One file: what is asked for, and the room made ahead of it, are judged by the same sizes.
#include <c10/util/ScopeExit.h>

#include <algorithm>

#include "follow/frames.h"
#include "profiler/displaced.h"
#include "session/arena.h"
#include "session/session.h"

namespace bayplan::swap {
namespace {

// What CUDA's caching allocator takes from the driver for a request (c10/cuda/CUDACachingAllocator.cpp,
// get_allocation_size).
uint64_t segment_bytes(uint64_t bytes) {
  constexpr uint64_t kMiB = uint64_t{1} << 20;
  if (bytes <= kMiB) return 2 * kMiB;
  if (bytes < 10 * kMiB) return 20 * kMiB;
  return (bytes + 2 * kMiB - 1) / (2 * kMiB) * (2 * kMiB);
}

// The same in the pages that an expandable segment grows by, one of each pool's.
uint64_t pages_bytes(uint64_t bytes) {
  constexpr uint64_t kSmallPage = uint64_t{2} << 20, kLargePage = uint64_t{20} << 20;
  return kSmallPage + (bytes + kLargePage - 1) / kLargePage * kLargePage;
}

// Segments of their own for what is as large, one more for the others, and one for small requests: the most at once. Of
// pages a block may begin and end within one.
uint64_t segments_peak(const OperatorNeeds::Way& way, bool pages) {
  constexpr uint64_t kOwn = uint64_t{10} << 20;  // a segment of 20 MiB serves smaller ones
  uint64_t most = 0, now = 0;
  bool others = false, small = false;
  std::vector<uint64_t> given;
  for (const Requests::Event& event : way) {
    if (event.bytes == 0) {
      now -= given[event.number];
      continue;
    }
    const bool is_small = SmallRequests::is_small(event.bytes), own = event.bytes >= kOwn;
    small = small || is_small;
    others = others || (!is_small && !own);
    const uint64_t whole = pages ? pages_bytes(event.bytes) + segment_bytes(kOwn - 1) : segment_bytes(event.bytes);
    given.push_back(own ? whole : block_of(event.bytes));
    now += given.back();
    most = std::max(most, now);
  }
  return most + (others ? segment_bytes(kOwn - 1) : 0) + (small ? segment_bytes(1) : 0);
}

bool has_large(const OperatorNeeds::Way& way) {
  return std::any_of(way.begin(), way.end(),
                     [](const Requests::Event& event) { return !SmallRequests::is_small(event.bytes); });
}

// Under a policy room is looked for only for operators that take more than this part of the arena: by moving blocks,
constexpr uint64_t kManyMoves = 64;
// and by swapping, too.
constexpr uint64_t kManyOperators = 16;

}  // namespace

// Of storages from a place on, each once; of all, or of those that lie in an arena.
uint64_t Session::distinct_bytes(const Pins& all, size_t first, bool large_only) {
  Pins pins(all.begin() + static_cast<std::ptrdiff_t>(first), all.end());
  std::sort(pins.begin(), pins.end());
  pins.erase(std::unique(pins.begin(), pins.end()), pins.end());
  uint64_t bytes = 0;
  for (const c10::StorageImpl* storage : pins) {
    if (!large_only || !SmallRequests::is_small(storage->nbytes())) bytes += block_of(storage->nbytes());
  }
  return bytes;
}

// The most that large requests have at once.
uint64_t Session::large_peak(const OperatorNeeds::Way& way) {
  uint64_t most = 0, now = 0;
  std::vector<uint64_t> given;
  for (const Requests::Event& event : way) {
    if (event.bytes == 0) {
      now -= given[event.number];
      continue;
    }
    given.push_back(SmallRequests::is_small(event.bytes) ? 0 : block_of(event.bytes));
    now += given.back();
    most = std::max(most, now);
  }
  return most;
}

// Without the guard, what the policy sent away is the policy's business; what left for lack of memory is not.
void Session::demand(c10::StorageImpl& storage) {
  const Lock held(store_.lock);
  const Entry* entry = Store::entry_of(storage);
  if (entry == nullptr || (!state_.options.guard && transfers_.sent_away(*entry))) return;
  if (watching_ && storage.device() == device_) return streams_.bring_back(storage);
  store_.ensure_in(storage, Users::kAnyStream);
}

void Session::hold(c10::StorageImpl& storage) {
  const Lock held(store_.lock);
  if (storage.device() == device_) streams_.hold(storage);
}

// While nobody watches, pins are not known, so that nothing may leave.
bool Session::relieve(uint64_t missing, unsigned attempt, const Pins& pins) {
  const Lock held(store_.lock);
  const bool freed = (attempt == 0 || watching_) && relieve_one(missing, attempt, pins);
  latest_.answers += freed ? 1 : 0;
  if (!freed && attempt > 0) note_refused(pins);
  return freed;
}

// Ranges of the arena do not help a small request, nor does waiting for what is on its way.
bool Session::relieve_one(uint64_t missing, unsigned attempt, const Pins& pins) {
  const bool may_go = attempt > 0 && !passive_.stands_still();
  if (small_.shortage(1) == 0) return passive_.relieve(missing, attempt, pins) || (may_go && empty_small(pins));
  if (!may_go) return false;
  if (small_.relieve(pins) || empty_arena(pins)) return true;
  return !small_.certain() && passive_.relieve(missing, attempt, pins);
}

// The limit stands already, so that nobody takes what this frees. Other threads know their addresses; if they do not
// come to an end, nothing leaves, and later requests for memory ask again.
Descent Session::come_down() {
  const auto in_use = [this] { return static_cast<uint64_t>(allocated().current); };
  const bool alone = wait_for_others(device_);
  const Lock held(store_.lock);
  Descent done{in_use(), 0, 0};
  done.after_bytes = done.before_bytes;
  if (!budget_.has_value() || done.before_bytes <= *budget_) return done;
  const Pins& pins = OpenFrames::of_thread(device_).pins();
  try {
    while (alone && in_use() > *budget_) {
      const uint64_t missing = in_use() - *budget_;
      if (!passive_.swap_out(missing, pins, /*residents=*/false) && !passive_.swap_out(missing, pins, true)) break;
      ++done.storages;
    }
  } catch (const HostMemoryShort&) {
    keep_error(std::current_exception());
  }
  done.after_bytes = in_use();
  if (done.after_bytes <= *budget_) c10::getDeviceAllocator(device_.type())->resetPeakStats(device_.index());
  return done;
}

bool Session::grows_by_pages() const { return grounds_.segments() == Segments::kExpandable; }

// Small requests are all there is. A page that many small tensors divide is not had back by sending one away: until an
// iteration has had no other requests, room for a whole one stays free.
bool Session::fills_small() const {
  return grounds_.lent() || (grounds_.only_small() && (!grows_by_pages() || state_.iterations > 1));
}

// Room for segments that hold the largest storage that was seen, or for that storage. The allocator gives back the
// segments of which nothing is in use before it refuses a request, so that what counts is what it cannot give back. Of
// expandable ones it gives back free pages, and does not say how many there are: under its lock, where it cannot be
// asked to, as many count as lay between blocks in use when it last had.
uint64_t Session::shortage(unsigned requests) const {
  if (!budget_.has_value() || grounds_.making()) return 0;
  if (state_.arena.there()) return shortage_in_arena(requests);
  if (fills_small() && asked_ == 0) return small_.shortage(requests);
  const auto stats = memory();
  if (grounds_.segments() == Segments::kNone) {
    const uint64_t wanted = static_cast<uint64_t>(stats.allocated_bytes[kAllPools].current) + passive_.largest_bytes();
    return wanted > *budget_ ? wanted - *budget_ : 0;
  }
  const int64_t kept = stats.active_bytes[kAllPools].current + stats.inactive_split_bytes[kAllPools].current;
  const uint64_t wanted = static_cast<uint64_t>(kept) + requests * room_for(std::max(asked_, passive_.largest_bytes()));
  return wanted > *budget_ ? wanted - *budget_ : 0;
}

uint64_t Session::shortage_without_cache(unsigned requests) {
  const bool by_pages = grows_by_pages() && !(fills_small() && asked_ == 0);
  if (!budget_.has_value() || state_.arena.there() || !by_pages) return shortage(requests);
  const auto reserved = [this] { return static_cast<uint64_t>(memory().reserved_bytes[kAllPools].current); };
  const auto active = [this] { return static_cast<uint64_t>(memory().active_bytes[kAllPools].current); };
  const uint64_t room = requests * room_for(std::max(asked_, passive_.largest_bytes()));
  if (reserved() + room <= *budget_) return 0;
  constexpr uint64_t kSides = uint64_t{40} << 20;  // pages on which what is free now since may begin and end
  uint64_t kept = std::min(reserved(), active() + between_bytes_ + (in_segments() ? kSides : 0));
  if (grounds_.only_small()) kept = std::max(kept, small_.segments_in_use());
  if (!WithoutWaits::active()) {
    empty_cache(device_);
    kept = reserved();
    between_bytes_ = kept - std::min(kept, active());
  }
  const uint64_t wanted = kept + room;
  return wanted > *budget_ ? wanted - *budget_ : 0;
}

// The driver gives nothing more, but to small requests: what counts are ranges of free addresses.
uint64_t Session::shortage_in_arena(unsigned requests) const {
  const uint64_t small = small_.shortage(requests);
  if (small > 0 || small_.certain()) return small;
  const uint64_t most = asked_ > 0 ? asked_ : std::max<uint64_t>(block_of(passive_.largest_bytes()), 1);
  const uint64_t wanted = std::min(most, state_.arena.bytes());
  return Layout(state_.arena, state_.tracker).fitting(wanted) >= requests ? 0 : wanted;
}

// The allocator does not say how much it is asked for, only that it has no such block. Where such an operator has run,
// its requests are known, one by one; else the operator that runs asks at most for the rest of what it is supposed to.
// What it was given lies where it was seen. Where that was not seen (a profiler listens in our place), a gap that would
// hold the rest but not all of it holds what the operator was given. (Where one holds all of it, the request is one of
// at most 1 MiB, which is not served from the arena.)
void Session::begin_request() {
  if (budget_.has_value()) grounds_.look(*budget_);
  const RunningOperator& running = state_.running;
  if (running.frame != nullptr && !std::exchange(asked_in_operator_, true))
    retries_before_ = static_cast<uint64_t>(memory().num_alloc_retries);
  if (!knows_places()) {
    if (grounds_.segments() != Segments::kNone) small_.begin(std::nullopt, /*other=*/false);
    return note_request(0, 0, Layout(state_.arena, state_.tracker));
  }
  const bool given = running.frame != nullptr && running.given.bytes > 0;
  const uint64_t wanted = given ? expected_need() : passive_.largest_bytes();
  const Requests* own = running.frame == nullptr ? nullptr : OpenFrames::of_thread(device_).requests_of(*running.frame);
  if (own != nullptr) note_blocks(*own);
  const Layout layout(state_.arena, state_.tracker);
  const uint64_t more = layout.largest_gap() + block_of(1);
  const uint64_t expected = own == nullptr ? 0 : needs_.next(running.info->id, running.given, own->events());
  const uint64_t next = Returning::on() ? Returning::bytes() : expected;
  // What a gap of the arena would have served is not what was asked for: kernels may want a workspace first.
  const uint64_t supposed = next > 0 ? next : std::max(wanted, passive_.largest_bytes());
  const bool other =
      state_.arena.there() && !SmallRequests::is_small(supposed) && layout.largest_gap() >= block_of(supposed);
  small_.begin(next > 0 ? std::optional<uint64_t>(next) : std::nullopt, other);
  if (!state_.arena.there()) {
    const bool known = given && needs_.knows(running.info->id, running.given);
    const uint64_t most = next > 0 || known ? next : std::max(wanted, SmallRequests::kMostBytes + 1);
    asked_ = SmallRequests::is_small(most) ? 0 : most;  // who has never run may ask for anything
  } else if (next > 0) {
    asked_ = std::max(block_of(next), more);  // a gap that is larger holds what nobody has seen
  } else if (own != nullptr) {
    asked_ = std::max(block_of(wanted - std::min(wanted, own->bytes())), more);
  } else {
    const uint64_t had = running.before > 0 ? given_out() - running.before : 0;
    const bool whole = layout.largest_gap() >= block_of(wanted);
    const bool known = given && needs_.knows(running.info->id, running.given);
    const bool rest = known && !whole && had > 0 && had < wanted;
    asked_ = rest ? block_of(wanted - had) : std::max({block_of(wanted), block_of(passive_.largest_bytes()), more});
    if (rest) state_.arena.unseen = layout.gaps(asked_);
  }
  note_request(next, own == nullptr ? 0 : own->count(), layout);
}

void Session::note_blocks(const Requests& own) {
  state_.arena.unseen.clear();
  for (const Requests::Block& block : own.blocks())
    state_.arena.unseen.push_back({block.begin, block.begin + block.bytes});
}

void Session::end_request() {
  small_.end();
  grounds_.doubt();
  asked_ = 0;
  state_.arena.unseen.clear();
}

void Session::make_room_for_operator(const at::RecordFunction& frame, OpenFrames& own) {
  const Lock held(store_.lock);
  RunningOperator& running = state_.running;
  if (running.frame != &frame) return;
  if (others_compute(device_)) {
    shared_ = state_.iterations;
    protect(true);
  }
  running.given = arguments_of(own);
  running.distinct = distinct_bytes(own.pins(), own.first());
  given_bytes_.clear();
  for (size_t place = own.first(); place < own.pins().size(); ++place)
    given_bytes_.push_back(own.pins()[place]->nbytes());
  if (!needs_.knows(running.info->id, running.given)) protect(true);
  const auto& ways = needs_.ways(running.info->id, running.given);
  if (lost_arena() && std::any_of(ways.begin(), ways.end(), has_large)) take_arena(own);
  if (knows_places()) {
    make_room_for_small(ways, own);
    make_room_for_large(ways, own);
  } else {
    make_room_in_segments(ways, own);
  }
  running.before = given_out();
  own.see_requests(frame);
}

// Without an arena: for all that the operator asks for at once, also inside, as the allocator asks once for each
// request and then only what has page-locked memory may leave.
void Session::make_room_in_segments(const std::vector<OperatorNeeds::Way>& ways, const OpenFrames& own) {
  uint64_t need = ways.empty() ? expected_need() : 0;
  for (const auto& way : ways) need = std::max(need, segments_peak(way, grows_by_pages()));
  if (need == 0 || passive_.stands_still()) return;
  asked_ = need;
  const auto over = c10::make_scope_exit([this] { asked_ = 0; });  // the host may be short
  uint64_t missing = shortage(1);
  if ((missing > 0 || shortage_without_cache(1) > 0) && passive_.is_held_up()) return;
  if (missing > 0) passive_.relieve(missing, 0, own.pins());
  for (;;) {
    missing = shortage(1);
    if (missing == 0) missing = shortage_without_cache(1);
    if (missing == 0 || !passive_.relieve(missing, 1, own.pins())) break;
  }
}

// Outside of the allocator's lock whatever may leave can.
void Session::make_room_for_small(const std::vector<OperatorNeeds::Way>& ways, const OpenFrames& own) {
  if (passive_.stands_still()) return;
  const RunningOperator& running = state_.running;
  bool served = true;
  for (const auto& way : ways) served = small_.make_room(way, own.pins(), /*others_leave=*/true) && served;
  if (!served && may_lend(running.info->id, running.given, own)) grounds_.lend(own.pins());
  if (!ways.empty()) return;
  const uint64_t need = expected_need();
  constexpr uint64_t kOne = uint64_t{1} << 20;  // of large arguments few results are small
  const bool small = SmallRequests::is_small(running.given.largest);
  small_.make_room_for_unknown(small ? std::max(need, running.given.largest) : std::min(need, kOne), own.pins());
}

// Where there have been only small requests, an arena is taken once a larger one is known to come.
void Session::make_room_for_large(const std::vector<OperatorNeeds::Way>& ways, const OpenFrames& own) {
  if (!state_.arena.there() && std::any_of(ways.begin(), ways.end(), has_large)) take_arena(own);
  if (!state_.arena.there()) return;
  const uint64_t least = distinct_bytes(own.pins(), own.first(), /*large_only=*/true) + large_need(ways);
  if (least > state_.arena.bytes() && grounds_.would_hold(least, *budget_)) widen_arena(least, own);
  if (!state_.arena.there()) return;
  const Layout layout(state_.arena, state_.tracker);
  if (ways.empty() || !std::all_of(ways.begin(), ways.end(), [&](const auto& way) { return layout.serves(way); }))
    make_room_for(expected_need(), own);
  if (needs_.has_met(Shortage::kAgain, state_.running.info->id, state_.running.given)) make_place_before(ways, own);
}

void Session::take_arena(const OpenFrames& own) {
  if (owns_thread() && !compute_.is_elsewhere() && passive_.is_held_up()) return;
  if (grounds_.lent() && arena_may_change()) return take_back_arena(own);
  grounds_.ask_for_large();
  if (arena_may_change()) grounds_.renew(*budget_, own.pins());
}

// What the operator that begins asks for at once of an arena; if it has never run, as much as its largest argument, or
// what the one at its place of the iteration before tells.
uint64_t Session::large_need(const std::vector<OperatorNeeds::Way>& ways) const {
  uint64_t most = 0;
  for (const auto& way : ways) most = std::max(most, large_peak(way));
  const uint64_t largest = state_.running.given.largest;
  if (!ways.empty()) return most;
  const uint64_t told = told_by_place();
  return std::max(SmallRequests::is_small(largest) ? 0 : block_of(largest),
                  SmallRequests::is_small(told) ? 0 : block_of(told));
}

// At most so many bytes are asked for by the operator that runs. With arguments that have never come it may be one that
// the iteration before had at the same place, with smaller ones.
uint64_t Session::expected_need() const {
  const RunningOperator& running = state_.running;
  const uint64_t most = needs_.of(running.info->id, running.given);
  if (needs_.knows(running.info->id, running.given)) return most;
  return std::max(most, told_by_place());
}

// What the operator at this place of the iteration before tells; what no budget holds, another operator asked for.
uint64_t Session::told_by_place() const {
  const uint64_t told = place_needs_.of(state_.running.place, given_bytes_);
  return budget_.has_value() && told > *budget_ ? 0 : told;
}

// The arena cannot hold the operator's arguments and what it asks for: small storages leave to a larger one. The
// operator has not begun, so that its arguments may leave, too; they come back at once.
void Session::widen_arena(uint64_t bytes, const OpenFrames& own) {
  if (!arena_may_change()) return static_cast<void>(passive_.is_held_up());
  const Pins known(own.pins().begin(), own.pins().begin() + static_cast<std::ptrdiff_t>(own.first()));
  const Pins arguments(own.pins().begin() + static_cast<std::ptrdiff_t>(own.first()), own.pins().end());
  grounds_.widen(bytes, *budget_, known);
  for (c10::StorageImpl* storage : arguments) streams_.bring_back(*storage);
}

bool Session::arena_may_change() { return owns_thread() && !others_compute(device_) && !compute_.is_elsewhere(); }

void Session::make_room_for(uint64_t need, const OpenFrames& own) {
  const bool any = !transfers_.has_policy() || is_shared();
  if (!any && need < state_.arena.bytes() / kManyMoves) return;
  const bool large = any || need >= state_.arena.bytes() / kManyOperators;
  passive_.make_room(need, own.pins(), /*others_leave=*/large, own.first());
}

void Session::learn_needs() {
  const RunningOperator& running = state_.running;
  if (running.before == 0) return;
  const Requests* own = OpenFrames::of_thread(device_).requests_of(*running.frame);
  if (own != nullptr) {
    if (grounds_.only_small() && has_large(own->events())) grounds_.ask_for_large();
    most_needed_ = std::max(most_needed_, running.distinct + own->peak_bytes());
    place_needs_.learn(running.place, given_bytes_, own->peak_bytes());
    return needs_.learn(running.info->id, running.given, own->peak_bytes(), own->events());
  }
  needs_.learn(running.info->id, running.given, given_out() - running.before, {});
}

void Session::renew_arena_if_due(const OpenFrames& own) {
  if (!grounds_.due() || own.outermost() != nullptr || !trains_here()) return;
  const Lock held(store_.lock);
  if (!is_active() || !budget_.has_value() || others_compute(device_) || compute_.is_elsewhere()) return;
  grounds_.renew(*budget_, own.pins());
}

void Session::mend_arena(const OpenFrames& own) {
  if (!owns_thread()) return;
  const Lock held(store_.lock);
  if (!is_active() || !budget_.has_value() || others_compute(device_) || compute_.is_elsewhere()) return;
  if (grounds_.doubted()) grounds_.look_for_loss();
  if (grounds_.lacks()) grounds_.mend(*budget_, own.pins());
}

uint64_t Session::room_for(uint64_t bytes) const {
  return grounds_.segments() == Segments::kExpandable ? pages_bytes(bytes) : segment_bytes(bytes);
}

}  // namespace bayplan::swap

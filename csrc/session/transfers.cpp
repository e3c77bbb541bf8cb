// What a policy says, carried out.
// One file: what leaves, is released and returns is one flight of a target, in one iteration.
#include "session/transfers.h"

#include <algorithm>
#include <iterator>

#include "follow/frames.h"

namespace bayplan::swap {

void Transfers::set_policy(std::optional<Policy> policy) {
  finder_ = policy.has_value() ? std::make_unique<Finder>(std::move(*policy), state_.options.matching) : nullptr;
  held_.clear();
  if (finder_ != nullptr) {
    for (const Landmark& landmark : finder_->policy().landmarks) {
      if (landmark.storage != 0) finder_->course().hold(landmark.storage, known(landmark.storage));
    }
    for (const Target& target : finder_->policy().targets) {
      held_.push_back(target.storage == 0 ? std::nullopt : known(target.storage));
    }
    finder_->restart();
  }
  gaps_ = finder_ == nullptr ? Gaps() : Gaps(finder_->policy().pace);
  leaving_now_.clear();  // they number the old policy's targets
  state_.counts.matched = 0;
  forget_flights();
}

// The address is that of a storage which the session knows, or nobody's.
std::optional<WeakStorage> Transfers::known(uintptr_t storage) const {
  const Tracked* tracked = state_.tracker.find(reinterpret_cast<c10::StorageImpl*>(storage));
  return tracked == nullptr ? std::nullopt : std::optional(tracked->storage);
}

void Transfers::restart() {
  leaving_now_.clear();
  if (finder_ != nullptr) finder_->restart();
  forget_flights();
  coming_.clear();
}

void Transfers::forget() {
  leaving_.clear();
  waiting_.clear();
  coming_.clear();
}

void Transfers::forget_flights() {
  waiting_.clear();
  gaps_.restart();
  flights_.assign(finder_ == nullptr ? 0 : finder_->policy().targets.size(), Flight{});
}

void Transfers::act_before(const Anchor& anchor, const at::RecordFunction& frame) {
  finder_->follow(state_.device, anchor.phase, frame);
  next_place_ = finder_->place_of(anchor) + 1;
  for (const uint32_t number : finder_->events(anchor)) {
    const Event& event = finder_->policy().events[number];
    if (event.kind == ActionKind::kSwapOut) {
      leave_unseen(event.targets);
    } else {
      event.kind == ActionKind::kRelease ? release(event.targets) : swap_in(event.targets);
    }
  }
  if (!state_.options.guard) arrive(anchor.op);
}

void Transfers::sighted(const c10::Storage& storage, uint64_t key, uint32_t op, uint32_t position) {
  const std::optional<uint32_t> target = finder_->target(key, op, position);
  if (target.has_value()) match(*target, StoragePtr::reclaim_copy(storage.unsafeGetStorageImpl()));
}

// Those that no operator has used yet in this iteration.
void Transfers::leave_unseen(const std::vector<uint32_t>& targets) {
  for (const uint32_t target : targets) {
    auto storage = held_[target].has_value() ? held_[target]->lock() : StoragePtr();
    if (storage != nullptr && storage->nbytes() == finder_->policy().targets[target].bytes) {
      match(target, std::move(storage));
    }
  }
}

void Transfers::match(uint32_t target, StoragePtr storage) {
  ++state_.counts.matched;
  if (state_.iteration.pass_bytes < finder_->policy().targets[target].least_pass_bytes) {
    ++state_.counts.spared;
    flights_[target].spared = true;
    return;
  }
  leaving_now_.emplace_back(target, std::move(storage));
}

void Transfers::act_after() {
  const bool may_wait = gaps_.known() && state_.options.guard && state_.options.record_stream == RecordStream::kCustom;
  for (const auto& [target, storage] : std::exchange(leaving_now_, {})) {
    if (!may_wait) {
      swap_out(target, storage);
      continue;
    }
    flights_[target].waits = true;
    waiting_.emplace_back(target, storage);
  }
  if (!waiting_.empty()) let_leave();
}

// Who may wait no longer leaves, reads of the host or not.
void Transfers::let_leave() {
  for (const auto& [target, weak] : std::exchange(waiting_, {})) {
    const auto storage = weak.lock();
    if (storage == nullptr || !flights_[target].waits) continue;
    const uint32_t latest = finder_->policy().targets[target].latest_op;
    if (latest <= next_place_ || gaps_.suits(next_place_, storage->nbytes(), latest)) {
      swap_out(target, storage);
    } else {
      waiting_.emplace_back(target, weak);
    }
  }
}

bool Transfers::hurry(const std::function<bool(const Tracked&, c10::StorageImpl&)>& may_leave) {
  for (const auto& [target, weak] : waiting_) {
    const auto storage = weak.lock();
    const Tracked* tracked = storage == nullptr ? nullptr : state_.tracker.find(storage.get());
    if (tracked == nullptr || !flights_[target].waits || !may_leave(*tracked, *storage)) continue;
    swap_out(target, storage);
    Entry* entry = Store::entry_of(*storage);
    if (entry == nullptr || entry->place != Place::kLeaving) continue;
    release_block(*storage);
    ++state_.counts.relieved;
    return true;
  }
  return false;
}

StoragePtr Transfers::flying(uint32_t target, Place place) const {
  const Flight& flight = flights_[target];
  return out_since(flight.storage.has_value() ? flight.storage->lock() : StoragePtr(), flight.copied_out, place);
}

StoragePtr Transfers::still_leaving(const Leaving& leaving) const {
  return out_since(leaving.storage.lock(), leaving.copied_out, Place::kLeaving);
}

bool Transfers::sent_away(const Entry& entry) const {
  return std::any_of(flights_.begin(), flights_.end(),
                     [&entry](const Flight& flight) { return flight.copied_out == entry.copied_out; });
}

// ---- releases -------------------------------------------------------------------------------------------------------

void Transfers::release_block(c10::StorageImpl& storage) {
  const EngineWork work = state_.work();
  Entry& entry = *Store::entry_of(storage);
  entry.copied_out->block(entry.home);
  state_.store.release(storage);
}

void Transfers::release(const std::vector<uint32_t>& targets) {
  for (const uint32_t target : targets) {
    if (flights_[target].spared) continue;
    if (flights_[target].waits) {
      flights_[target].released = true;
      continue;
    }
    const auto storage = flying(target, Place::kLeaving);
    if (storage == nullptr) {
      if (state_.options.record_stream != RecordStream::kTorch) ++state_.counts.missed_events;
      continue;
    }
    if (state_.options.record_stream == RecordStream::kPrinted) release_block(*storage);
    for (Leaving& leaving : leaving_) leaving.due = leaving.due || leaving.copied_out == flights_[target].copied_out;
  }
  if (!finder_->policy().on_demand) release_due();
}

// The policy's operator times are means, so its release may come before the copy's end. Then the block waits until
// somebody needs it (`release_leaving`) or a later release finds the copy done: the compute stream never waits for
// memory that nobody asks for. Copies end in their order.
void Transfers::release_due() {
  while (!leaving_.empty()) {
    const Leaving& first = leaving_.front();
    if (const auto storage = still_leaving(first)) {
      if (!first.due || !first.copied_out->query()) return;
      release_block(*storage);
    }
    leaving_.pop_front();
  }
}

// The first to leave are the first to be gone; no more of them than the request needs, since each makes the compute
// stream wait for its copy.
uint64_t Transfers::release_leaving(uint64_t missing) {
  uint64_t released = 0;
  for (uint64_t bytes = 0; bytes < missing && !leaving_.empty(); leaving_.pop_front()) {
    const auto storage = still_leaving(leaving_.front());
    if (storage == nullptr) continue;
    release_block(*storage);
    bytes += storage->nbytes();
    ++released;
  }
  return released;
}

// ---- swap-ins -------------------------------------------------------------------------------------------------------

// All blocks are allocated before the first copy is queued: then one wait for the compute stream's "now" covers them.
void Transfers::swap_in(const std::vector<uint32_t>& targets) {
  std::vector<Incoming> arrivals;
  for (const uint32_t target : targets) {
    if (std::exchange(flights_[target].waits, false)) continue;  // nobody needed its memory meanwhile
    if (const auto kept = flying(target, Place::kLeaving)) {     // nobody needed its block meanwhile
      streams_.bring_back(*kept);
      ++state_.counts.kept;
    } else if (auto storage = flying(target, Place::kAway)) {
      if (auto incoming = allocate(std::move(storage))) arrivals.push_back(std::move(*incoming));
    } else if (!flights_[target].spared) {
      ++state_.counts.missed_events;
    }
  }
  if (arrivals.empty()) return;
  const EngineWork work = state_.work();
  const c10::Stream lane = lanes_of(state_.device).in;
  record_on(*state_.compute)->block(lane);
  for (auto& [storage, block] : arrivals) {
    Store::entry_of(*storage)->copied_out->block(lane);
    state_.store.swap_in(*storage, std::move(block));
    coming_.emplace_back(storage);
  }
}

// Nothing where there is no memory: then it is fetched when it is used.
std::optional<Transfers::Incoming> Transfers::allocate(StoragePtr storage) {
  struct MayWait {
    bool& flag;
    explicit MayWait(bool& flag) : flag(flag) { flag = true; }
    ~MayWait() { flag = false; }
  };
  const MayWait asking(may_wait_);
  if (!state_.make_room(storage->nbytes(), /*others_leave=*/false)) {
    ++state_.counts.postponed;
    return std::nullopt;
  }
  try {
    c10::DataPtr block = state_.store.allocate(*Store::entry_of(*storage));
    return Incoming(std::move(storage), std::move(block));
  } catch (const c10::OutOfMemoryError&) {
    ++state_.counts.postponed;
    return std::nullopt;
  }
}

void Transfers::arrive(uint32_t op) {
  for (const uint32_t target : finder_->arrivals(op)) {
    const auto storage = flying(target, Place::kComing);
    if (storage == nullptr) continue;
    const EngineWork work = state_.work();
    EventPtr copied = Store::entry_of(*storage)->copied_in;
    copied->block(*state_.compute);
    state_.store.install(*storage);
    streams_.came_back(*storage, std::move(copied));
    ++state_.counts.in_time;
  }
}

// What the policy brings back too early for this program goes away again, the latest first: its host copy is whole.
bool Transfers::recall(const Pins& pins) {
  for (auto weak = coming_.rbegin(); weak != coming_.rend(); ++weak) {
    const auto storage = weak->lock();
    Entry* entry = storage == nullptr ? nullptr : Store::entry_of(*storage);
    if (entry == nullptr || entry->place != Place::kComing) continue;
    if (std::find(pins.begin(), pins.end(), storage.get()) != pins.end()) continue;
    const EngineWork work = state_.work();
    state_.store.recall(*storage);
    coming_.erase(std::next(weak).base());
    ++state_.counts.recalled;
    return true;
  }
  return false;
}

// ---- swap-outs ------------------------------------------------------------------------------------------------------

void Transfers::swap_out(uint32_t target, const StoragePtr& storage) {
  flights_[target].waits = false;
  const auto tracked = state_.tracker.find(storage.get());
  if (tracked == nullptr || state_.must_stay(*tracked) || in_compiled_code(state_.device) ||
      others_compute(state_.device) || Store::why_it_stays(*storage) != nullptr) {
    ++state_.counts.refused;
    return;
  }
  const EngineWork work = state_.work();
  streams_.leave_behind(*storage);
  try {
    state_.store.swap_out(*storage, *state_.compute);
  } catch (const HostMemoryShort&) {
    state_.keep_error(std::current_exception());
    ++state_.counts.refused;
    return;
  }
  const EventPtr copied_out = Store::entry_of(*storage)->copied_out;
  const bool due = flights_[target].released;
  flights_[target] = {WeakStorage(storage), copied_out};
  gaps_.queue(next_place_, storage->nbytes());
  if (state_.options.record_stream == RecordStream::kTorch) {
    state_.store.leave_to_allocator(*storage);
  } else {
    leaving_.push_back({WeakStorage(storage), copied_out, due});
  }
}

}  // namespace bayplan::swap

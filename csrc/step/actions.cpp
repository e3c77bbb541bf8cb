// What a step does to storages, and who waits for whom.
#include "step/step.h"

namespace bayplan::swap {

// Right after the operator before, not only when the next one begins: a program may ask for memory in between
// (`torch.empty` is no counted operator), and counts on what the plan frees for the next.
void Step::release_before(const OpRow& row) {
  for (const Action& action : row.before) {
    if (action.kind == ActionKind::kRelease) release(action);
  }
}

// All blocks are allocated before the first copy is queued: then the first wait on "now" covers them all, and a plan
// need not repeat it for the copies behind in the lane.
void Step::act_before(const OpRow& row) {
  std::vector<std::pair<const Action*, Arrivals>> due;
  for (const Action& action : row.before) {
    if (action.kind == ActionKind::kSwapIn) due.emplace_back(&action, allocate(action));
  }
  for (auto& [action, arrivals] : due) swap_in(*action, std::move(arrivals));
}

void Step::act_after(const OpRow& row) {
  for (const Action& action : row.after) {
    if (!outcome_.departure.has_value()) swap_out(action);
  }
}

void Step::wait_for(const std::vector<Wait>& waits, c10::Stream waiter) {
  for (const Wait& wait : waits) {
    if (wait.frontier) {
      record_on(*compute_)->block(waiter);
    } else if (const EventPtr& event = done_.at(wait.action)) {  // null: the action found nothing to do
      event->block(waiter);
    }
  }
}

void Step::wait_on_compute(const std::vector<Wait>& waits, StallCause cause) {
  if (waits.empty()) return;
  const uint32_t begin = mark(*compute_);
  wait_for(waits, *compute_);
  if (traced_) stalls_.push_back({cause, begin, mark(*compute_)});
}

void Step::release(const Action& action) {
  wait_on_compute(action.waits, StallCause::kSwapOut);
  const uint32_t now = mark(*compute_);
  for (const uint32_t slot : action.slots) {
    if (const auto storage = flying(slot, Place::kLeaving)) store_.release(*storage);
  }
  if (action.awaited) done_[action.id] = record_on(*compute_);
  if (traced_) {
    spans_.push_back({action.id, Lane::kCompute, now, now});
    sample_memory(now);
  }
}

Step::Arrivals Step::allocate(const Action& action) {
  Arrivals arrivals;
  for (const uint32_t slot : action.slots) {
    auto storage = flying(slot, Place::kAway);
    if (storage == nullptr) continue;
    try {
      c10::DataPtr block = store_.allocate(*Store::entry_of(*storage));
      arrivals.emplace_back(std::move(storage), std::move(block));
    } catch (const c10::OutOfMemoryError&) {
      ++outcome_.postponed;  // the guard tries again when the tensor is used
    }
  }
  return arrivals;
}

void Step::swap_in(const Action& action, Arrivals arrivals) {
  const c10::Stream lane = lanes_of(device_).in;
  wait_for(action.waits, lane);  // even if there is nothing to bring: later copies of the lane count on it
  const uint32_t begin = mark(lane);
  for (auto& [storage, block] : arrivals) store_.swap_in(*storage, std::move(block));
  if (action.awaited) done_[action.id] = record_on(lane);
  if (traced_) {
    spans_.push_back({action.id, Lane::kIn, begin, mark(lane)});
    sample_memory(mark(*compute_));
  }
}

// Null if the slot's storage may leave now. While another thread is inside an operator, that operator may hold the bare
// address of a storage that should leave.
const char* Step::why_it_stays(uint32_t slot) const {
  const auto storage = storage_of(slot);
  if (storage == nullptr) return "it is gone";
  if (open_ > 0) return "another thread is inside an operator";
  if (compute_.is_elsewhere() || elsewhere_.contains(*storage)) return "an operator on another stream uses it";
  if (held_.contains(*storage)) return "somebody took its address";
  return Store::why_it_stays(*storage);
}

void Step::swap_out(const Action& action) {
  std::vector<uint32_t> leaving;
  for (const uint32_t slot : action.slots) {
    const char* reason = why_it_stays(slot);
    if (reason == nullptr) {
      leaving.push_back(slot);
      continue;
    }
    ++outcome_.refused;
    note_difference("leaves tensor " + program_.slots[slot].label + " of " +
                    std::to_string(program_.slots[slot].bytes) + " bytes on the device: " + reason);
  }
  const c10::Stream lane = lanes_of(device_).out;
  wait_for(action.waits, lane);  // even if nothing leaves: later copies of the lane count on it
  const uint32_t begin = mark(lane);
  for (const uint32_t slot : leaving) {
    const auto storage = storage_of(slot);
    if (Store::entry_of(*storage) != nullptr) continue;  // two slots, one storage: it has just left
    store_.swap_out(*storage, *compute_);
    flights_[slot] = Store::entry_of(*storage)->copied_out;
  }
  if (action.awaited) done_[action.id] = record_on(lane);
  if (traced_) spans_.push_back({action.id, Lane::kOut, begin, mark(lane)});
}

void Step::demand(c10::StorageImpl& storage) {
  const Lock held(store_.lock);
  const bool ours = traced_ && storage.device() == device_;
  const c10::Stream reader = current_stream(storage.device());
  const uint32_t begin = ours ? mark(reader) : 0;
  if (store_.ensure_in(storage, users_) != Arrival::kPresent && ours) {
    stalls_.push_back({StallCause::kOnDemand, begin, mark(reader)});
  }
}

void Step::hold(c10::StorageImpl& storage) {
  const Lock held(store_.lock);
  if (storage.device() != device_) return;
  held_.place(c10::Storage(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(&storage)));
}

// At a mark on the compute stream. The allocator's statistics are a copy of all of them, under its lock.
void Step::sample_memory(uint32_t mark) {
  const auto bytes = allocated();
  memory_.push_back({mark, static_cast<uint64_t>(bytes.current), static_cast<uint64_t>(bytes.peak)});
}

}  // namespace bayplan::swap

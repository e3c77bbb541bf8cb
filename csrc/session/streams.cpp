#include "session/streams.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>

#include "profiler/storages.h"

namespace bayplan::swap {
namespace {

struct OfStream {
  c10::Stream stream;
  bool operator()(const TouchPtr& touch) const { return touch->stream() == stream; }
};

c10::Storage whole(c10::StorageImpl& storage) { return c10::Storage(StoragePtr::reclaim_copy(&storage)); }

}  // namespace

// ---- coming back ----------------------------------------------------------------------------------------------------

void Streams::move_to(c10::Stream stream) {
  ComputeStream& compute = state_.compute;
  if (compute.is_set() && *compute != stream) {
    const Lanes& lanes = lanes_of(state_.device);
    record_on(*compute)->block(lanes.out);  // it has used whatever leaves from now on
    record_on(lanes.in)->block(stream);
    record_on(lanes.out)->block(stream);
  }
  compute.set(stream);
}

void Streams::bring_back(c10::StorageImpl& storage) {
  const EngineWork work = state_.work();
  const Entry* entry = Store::entry_of(storage);
  try {
    if (entry != nullptr && entry->place == Place::kAway) state_.make_room(storage.nbytes(), /*others_leave=*/true);
  } catch (const HostMemoryShort&) {  // the allocator may have a block all the same, or find one
    state_.keep_error(std::current_exception());
  }
  EventPtr copied;
  state_.store.ensure_in(storage, Users::kAsker, &copied);
  if (copied != nullptr) came_back(storage, std::move(copied));
}

// Whatever is present, the compute stream has been told to wait for: only other streams need to look.
void Streams::came_back(c10::StorageImpl& storage, EventPtr copied) {
  if (state_.compute.is_elsewhere()) copied->block(*state_.compute);
  state_.tracker.at(whole(storage), state_.now).copied = std::move(copied);
  any_copied_ = true;
}

void Streams::await_copy(c10::StorageImpl& storage, const Tracked& tracked) {
  if (tracked.copied == nullptr) return;
  const c10::Stream reader = current_stream(state_.device);
  tracked.copied->block(reader);
  // What the program said of the block that left (`record_stream`) is not known of this one.
  c10::impl::VirtualGuardImpl(state_.device.type())
      .recordDataPtrOnStream(storage._mutable_data_ptr_no_checks(), reader);
}

void Streams::settle_copies() {
  if (!std::exchange(any_copied_, false)) return;
  const Lanes& lanes = lanes_of(state_.device);
  await(*record_on(lanes.in));
  await(*record_on(lanes.out));
}

// ---- operators on other streams -------------------------------------------------------------------------------------

TouchPtr Streams::begin_elsewhere(const Pins& storages, size_t first, bool differentiable) {
  graph_elsewhere_ = graph_elsewhere_ || differentiable;
  last_elsewhere_ = state_.iterations;
  const c10::Stream stream = current_stream(state_.device);
  for (size_t place = first; place < storages.size(); ++place) {
    c10::StorageImpl& storage = *storages[place];
    if (storage.nbytes() < state_.options.least_bytes) continue;
    Tracked& tracked = state_.tracker.at(whole(storage), state_.now);
    await_copy(storage, tracked);
    keep_gradient(tracked);
    touch(tracked, stream);
  }
  TouchPtr open = open_touch(stream);
  open->begin_operator();
  return open;
}

// Until here nobody else knew them, so none can have left.
void Streams::end_elsewhere(Touch& done, const std::vector<WeakStorage>& made) {
  for (const auto& weak : made) {
    const auto storage = weak.lock();
    if (storage == nullptr || storage->device() != state_.device) continue;
    if (storage->nbytes() < state_.options.least_bytes) continue;
    Tracked& tracked = state_.tracker.at(c10::Storage(storage), state_.now);
    keep_gradient(tracked);
    touch(tracked, done.stream());
  }
}

void Streams::record_stream(const at::RecordFunction& frame) {
  const auto inputs = frame.inputs();
  if (inputs.size() < 2 || !inputs[0].isTensor() || !inputs[1].isStream()) return;
  const c10::Storage* storage = storage_on(state_.device, inputs[0].toTensor());
  const c10::Stream stream = inputs[1].toStream();
  if (storage == nullptr || storage->nbytes() < state_.options.least_bytes) return;
  if (stream.device() == state_.device) touch(state_.tracker.at(*storage, state_.now), stream);
}

void Streams::touch_if_elsewhere(Tracked& tracked) {
  if (state_.compute.is_elsewhere()) touch(tracked, current_stream(state_.device));
}

void Streams::hold(c10::StorageImpl& storage) {
  Tracked& tracked = state_.tracker.at(whole(storage), state_.now);
  tracked.held = state_.iterations;
  if (!ever_seen_) return;
  if (tracked.copied != nullptr) await(*tracked.copied);
  for (const TouchPtr& open : std::vector<TouchPtr>(open_touches_)) touch(tracked, open->stream());
}

void Streams::note_pass(bool in_backward) {
  const bool was_in_pass = std::exchange(in_pass_, in_backward);
  if (in_pass_ && !was_in_pass) pass_began_ = state_.now;
}

// ---- leaving --------------------------------------------------------------------------------------------------------

const TouchPtr& Streams::open_touch(c10::Stream stream) {
  auto open = std::find_if(open_touches_.begin(), open_touches_.end(), OfStream{stream});
  if (open == open_touches_.end()) open = open_touches_.insert(open, std::make_shared<Touch>(stream));
  if ((*open)->closed()) *open = std::make_shared<Touch>(stream);
  return *open;
}

void Streams::touch(Tracked& tracked, c10::Stream stream) {
  if (stream == *state_.compute) return;
  const auto known = std::find_if(tracked.touches.begin(), tracked.touches.end(), OfStream{stream});
  if (known == tracked.touches.end()) {
    tracked.touches.push_back(open_touch(stream));
  } else {
    *known = open_touch(stream);
  }
}

void Streams::close_touches() {
  for (const TouchPtr& open : open_touches_) open->close();
}

void Streams::leave_behind(c10::StorageImpl& storage) {
  const c10::Stream lane = lanes_of(state_.device).out;
  record_on(*state_.compute)->block(lane);  // whoever asks may work on another stream
  Tracked* tracked = state_.tracker.find(&storage);
  if (tracked == nullptr) return;
  for (const TouchPtr& touch : tracked->touches) touch->block(lane);
  tracked->touches.clear();
}

}  // namespace bayplan::swap

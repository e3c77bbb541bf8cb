// What comes back, and which streams wait for it. The host waits for no copy: the compute stream waits for what is
// brought back, whoever asked, and another stream waits when an operator of its own uses it. What another stream has
// used leaves behind that.
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <utility>

#include "follow/guard.h"
#include "profiler/storages.h"
#include "session/session.h"

namespace bayplan::swap {
namespace {

using Lock = std::lock_guard<std::recursive_mutex>;

struct OfStream {
  c10::Stream stream;
  bool operator()(const TouchPtr& touch) const { return touch->stream() == stream; }
};

c10::Storage whole(c10::StorageImpl& storage) {
  return c10::Storage(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(&storage));
}

}  // namespace

// ---- coming back ----------------------------------------------------------------------------------------------------

void Session::set_compute(c10::Stream stream) {
  if (compute_.has_value() && *compute_ != stream) {
    const Lanes& lanes = lanes_of(device_);
    record_on(*compute_)->block(lanes.out);  // it has used whatever leaves from now on
    record_on(lanes.in)->block(stream);
    record_on(lanes.out)->block(stream);
  }
  compute_ = stream;
  compute_id_.store(stream.id(), std::memory_order_relaxed);
}

// Without the guard, what the policy sent away is the policy's business; what left for lack of memory is not.
void Session::demand(c10::StorageImpl& storage) {
  const Lock held(store_.lock);
  const Entry* entry = Store::entry_of(storage);
  if (entry == nullptr || (!options_.guard && in_flight(*entry))) return;
  if (watching_ && storage.device() == device_) return bring_back(storage);
  store_.ensure_in(storage, Users::kAnyStream);
}

void Session::bring_back(c10::StorageImpl& storage) {
  const EngineWork work = measured();
  EventPtr copied;
  store_.ensure_in(storage, Users::kAsker, &copied);
  if (copied != nullptr) came_back(storage, std::move(copied));
}

// Whatever is present, the compute stream has been told to wait for: only other streams need to look.
void Session::came_back(c10::StorageImpl& storage, EventPtr copied) {
  if (is_elsewhere()) copied->block(*compute_);
  tracker_.at(whole(storage), now_).copied = std::move(copied);
  any_copied_ = true;
}

void Session::await_copy(c10::StorageImpl& storage, const Tracked& tracked) {
  if (tracked.copied == nullptr) return;
  const c10::Stream reader = current_stream(device_);
  tracked.copied->block(reader);
  // What the program said of the block that left (`record_stream`) is not known of this one.
  c10::impl::VirtualGuardImpl(device_.type()).recordDataPtrOnStream(storage._mutable_data_ptr_no_checks(), reader);
}

void Session::settle_copies() {
  if (!std::exchange(any_copied_, false)) return;
  const Lanes& lanes = lanes_of(device_);
  record_on(lanes.in)->synchronize();
  record_on(lanes.out)->synchronize();
}

// ---- operators on other streams, and other threads ------------------------------------------------------------------

bool Session::meets_elsewhere() {
  const Lock held(store_.lock);
  if (elsewhere_seen_) return false;
  const bool unseen = !needs_results();
  elsewhere_seen_ = true;
  refresh_guard();
  return unseen;
}

TouchPtr Session::on_elsewhere(const Pins& storages, size_t first, bool differentiable) {
  const Lock held(store_.lock);
  graph_elsewhere_ = graph_elsewhere_ || differentiable;
  const c10::Stream stream = current_stream(device_);
  for (size_t place = first; place < storages.size(); ++place) {
    c10::StorageImpl& storage = *storages[place];
    if (storage.nbytes() < options_.least_bytes) continue;
    Tracked& tracked = tracker_.at(whole(storage), now_);
    await_copy(storage, tracked);
    keep_gradient(tracked);
    touch(tracked, stream);
  }
  TouchPtr open = open_touch(stream);
  open->begin_operator();
  return open;
}

// Until here nobody else knew them, so none can have left.
void Session::on_elsewhere_end(Touch& done, const std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>>& made) {
  const Lock held(store_.lock);
  for (const auto& weak : made) {
    const auto storage = weak.lock();
    if (storage == nullptr || storage->device() != device_ || storage->nbytes() < options_.least_bytes) continue;
    Tracked& tracked = tracker_.at(c10::Storage(storage), now_);
    keep_gradient(tracked);
    touch(tracked, done.stream());
  }
}

void Session::on_record_stream(const at::RecordFunction& frame) {
  const Lock held(store_.lock);
  const auto inputs = frame.inputs();
  if (inputs.size() < 2 || !inputs[0].isTensor() || !inputs[1].isStream()) return;
  const c10::Storage* storage = storage_on(device_, inputs[0].toTensor());
  const c10::Stream stream = inputs[1].toStream();
  if (storage == nullptr || storage->nbytes() < options_.least_bytes || stream.device() != device_) return;
  touch(tracker_.at(*storage, now_), stream);
}

// Another thread's operators, a data loader's for instance: what they touch stays.
void Session::on_foreign_operator(const at::RecordFunction& frame) {
  for (const c10::IValue& value : frame.inputs()) {
    for_each_tensor(value, [&](const at::Tensor& tensor) {
      const c10::Storage* storage = storage_on(device_, tensor);
      if (storage != nullptr && storage->nbytes() >= options_.least_bytes) tracker_.at(*storage, now_).barred = true;
    });
  }
}

// Somebody will work with the address, on whichever stream.
void Session::hold(c10::StorageImpl& storage) {
  const Lock held(store_.lock);
  if (storage.device() != device_) return;
  Tracked& tracked = tracker_.at(whole(storage), now_);
  tracked.held = iterations_;
  if (!elsewhere_seen_) return;
  if (tracked.copied != nullptr) tracked.copied->synchronize();
  for (const TouchPtr& open : std::vector<TouchPtr>(open_touches_)) touch(tracked, open->stream());
}

// ---- leaving --------------------------------------------------------------------------------------------------------

const TouchPtr& Session::open_touch(c10::Stream stream) {
  auto open = std::find_if(open_touches_.begin(), open_touches_.end(), OfStream{stream});
  if (open == open_touches_.end()) open = open_touches_.insert(open, std::make_shared<Touch>(stream));
  if ((*open)->closed()) *open = std::make_shared<Touch>(stream);
  return *open;
}

void Session::touch(Tracked& tracked, c10::Stream stream) {
  if (stream == *compute_) return;
  const auto known = std::find_if(tracked.touches.begin(), tracked.touches.end(), OfStream{stream});
  if (known == tracked.touches.end()) {
    tracked.touches.push_back(open_touch(stream));
  } else {
    *known = open_touch(stream);
  }
}

void Session::close_touches() {
  for (const TouchPtr& open : open_touches_) open->close();
}

void Session::leave_behind_touches(c10::StorageImpl& storage) {
  Tracked* tracked = tracker_.find(&storage);
  if (tracked == nullptr) return;
  for (const TouchPtr& touch : tracked->touches) touch->block(lanes_of(device_).out);
  tracked->touches.clear();
}

// ---- measuring ------------------------------------------------------------------------------------------------------

void Session::measure_swapping() {
  const Lock held(store_.lock);
  iteration_.clock.timeline = std::make_shared<Timeline>(*compute_);
}

}  // namespace bayplan::swap

#include "session/sightings.h"

#include <utility>

#include "profiler/storages.h"

namespace bayplan::swap {
namespace {

Features& features_in(Phase phase, Tracked& tracked) {
  return phase == Phase::kWithoutGradients ? tracked.without_gradients : tracked.features;
}

// What a tensor's size tells of it: of what stays its bytes, of what comes and goes only how many dimensions it has, as
// batches and sequences differ from iteration to iteration.
uint64_t size_of(const Tracked& tracked, const at::Tensor& tensor) {
  return tracked.resident ? tensor.storage().nbytes() : static_cast<uint64_t>(tensor.dim());
}

bool fills(const OperatorInfo& info) { return info.name == "aten::mul.out" || info.name == "aten::copy_"; }

}  // namespace

void Sightings::restart() {
  seen_.clear();
  recording_ = false;
}

Tracked& Sightings::refreshed(const c10::Storage& storage) {
  Tracked& tracked = state_.tracker.at(storage, state_.now);
  if (std::exchange(tracked.iteration, state_.iterations) != state_.iterations) {
    tracked.features = tracked.without_gradients = Features();
  }
  tracked.barred = tracked.barred || state_.running.info->communicates;
  streams_.keep_gradient(tracked);
  return tracked;
}

void Sightings::see_arguments(const at::RecordFunction& frame) {
  position_ = 0;
  const std::vector<bool>& writes = state_.running.info->writes;
  size_t argument = 0;
  for (const c10::IValue& value : frame.inputs()) {
    const bool written = argument < writes.size() && writes[argument];
    ++argument;
    for_each_tensor(value, [&](const at::Tensor& tensor) { see_argument(tensor, written); });
  }
}

void Sightings::see_argument(const at::Tensor& tensor, bool written) {
  const c10::Storage* storage = storage_on(state_.device, tensor);
  if (storage == nullptr || storage->nbytes() < state_.options.least_bytes) return;
  Tracked& tracked = refreshed(*storage);
  if (std::exchange(tracked.last_use, state_.now) == state_.now) return;
  const Phase phase = state_.running.phase;
  const OperatorInfo& info = *state_.running.info;
  if (phase == Phase::kForward && !tracked.resident) {
    state_.iteration.forward_bytes += storage->nbytes();
    state_.iteration.pass_bytes += storage->nbytes();
  }
  Features& features = features_in(phase, tracked);
  // DDP's buckets: first used when the backward pass fills them. Its reducer compares their addresses in C++.
  if (written && phase == Phase::kBackward && features.uses == 0 && !tracked.resident && fills(info)) {
    tracked.barred = true;
  }
  features.use(ranks_, info.id);
  if (!transfers_.has_policy() && !recording_) return;
  note(*storage, features.key(phase, size_of(tracked, tensor), tensor.scalar_type()), false);
}

void Sightings::see_results(const at::RecordFunction& frame) {
  for (const c10::IValue& value : frame.outputs()) {
    for_each_tensor(value, [&](const at::Tensor& tensor) { see_result(tensor); });
  }
}

void Sightings::see_result(const at::Tensor& tensor) {
  const c10::Storage* storage = storage_on(state_.device, tensor);
  if (storage == nullptr || storage->nbytes() < state_.options.least_bytes) return;
  Tracked& tracked = refreshed(*storage);
  streams_.touch_if_elsewhere(tracked);
  const Phase phase = state_.running.phase;
  if (std::exchange(tracked.last_use, state_.now) == state_.now || features_in(phase, tracked).uses > 0) return;
  Features made;
  made.tags = ranks_.bit(state_.running.info->id);
  made.calls = ranks_.number(state_.running.info->id);
  note(*storage, made.key(phase, size_of(tracked, tensor), tensor.scalar_type(), position_), true);
}

void Sightings::note(const c10::Storage& storage, uint64_t key, bool result) {
  const auto op = static_cast<uint32_t>(state_.iteration.operators.size() - 1);
  const uint32_t position = position_++;
  if (recording_) {
    const auto address = reinterpret_cast<uintptr_t>(storage.unsafeGetStorageImpl());
    state_.iteration.sightings.push_back(
        {op, position, address, key, seen_[key]++, result, state_.iteration.pass_bytes});
  }
  if (transfers_.has_policy()) transfers_.sighted(storage, key, op, position);
}

}  // namespace bayplan::swap

#include "session/course.h"

#include <algorithm>
#include <utility>

#include "profiler/operators.h"
#include "profiler/storages.h"

namespace bayplan::swap {

Course::Course(const std::vector<Landmark>& landmarks) {
  for (uint32_t number = 0; number < landmarks.size(); ++number) {
    const Landmark& landmark = landmarks[number];
    landmarks_[landmark.storage].push_back({landmark.turn, landmark.phase, number});
  }
}

void Course::hold(uintptr_t storage, std::optional<WeakStorage> weak) {
  whole_ = whole_ && weak.has_value();
  if (weak.has_value() && landmarks_.find(storage) != landmarks_.end()) held_.push_back(std::move(*weak));
}

void Course::restart() {
  followed_ = whole_ && !landmarks_.empty() &&
              std::all_of(held_.begin(), held_.end(), [](const WeakStorage& held) { return held.use_count() > 0; });
  backward_ = begun_ = false;
  turn_ = landmark_ = since_ = 0;
}

void Course::follow(c10::Device device, Phase phase, const at::RecordFunction& frame) {
  if (!followed_) return;
  if (phase == Phase::kForward || phase == Phase::kWithoutGradients) turn_ += std::exchange(backward_, false) ? 1 : 0;
  backward_ = backward_ || phase == Phase::kBackward;
  ++since_;
  meet(0, phase);
  if (phase == Phase::kOptimizer) return;
  for (const c10::IValue& value : frame.inputs()) {
    for_each_tensor(value, [&](const at::Tensor& tensor) {
      const c10::Storage* storage = storage_on(device, tensor);
      if (storage != nullptr) meet(reinterpret_cast<uintptr_t>(storage->unsafeGetStorageImpl()), phase);
    });
  }
}

// What was passed already is met again by later uses.
void Course::meet(uintptr_t storage, Phase phase) {
  const auto found = landmarks_.find(storage);
  if (found == landmarks_.end()) return;
  for (const Turn& place : found->second) {
    if (place.turn != turn_ || place.phase != phase || (begun_ && place.number <= landmark_)) continue;
    landmark_ = place.number;
    since_ = 0;
    begun_ = true;
  }
}

}  // namespace bayplan::swap

// Follows the frames of one thread: which counted operator it is in, and which ranges surround it.
#include <algorithm>
#include <cstring>
#include <string_view>

#include "profiler/operators.h"

namespace bayplan {
namespace {

constexpr std::string_view kEngine = "autograd::engine::";
constexpr std::string_view kOptimizerStep = "Optimizer.step#";

bool begins(const char* text, std::string_view prefix) { return std::strncmp(text, prefix.data(), prefix.size()) == 0; }

}  // namespace

bool has_jagged(const at::RecordFunction& frame) {
  constexpr c10::DispatchKeySet kJagged({c10::DispatchKey::Python, c10::DispatchKey::NestedTensor});
  bool found = false;
  for (const c10::IValue& value : frame.inputs()) {
    for_each_tensor(value, [&](const at::Tensor& tensor) {
      found = found || tensor.unsafeGetTensorImpl()->key_set().has_all(kJagged);
    });
    if (found) return true;
  }
  return false;
}

// Autograd's own frames surround every operator of the backward pass, also the sums of gradients between its nodes. A
// range may end on another thread than it began on, so none is closed that is not open.
bool FrameTracker::move_range(const at::RecordFunction& frame, int step) {
  const auto move = [step](int& depth) { depth = std::max(depth + step, 0); };
  switch (frame.scope()) {
    case at::RecordScope::BACKWARD_FUNCTION:
      if (std::strstr(frame.name(), "AccumulateGrad") != nullptr) move(accumulation_);
      return true;
    case at::RecordScope::USER_SCOPE:
      if (!begins(frame.name(), kOptimizerStep)) return true;
      if (step > 0) {
        optimizers_.push_back(backward_);
      } else if (!optimizers_.empty()) {
        optimizers_.pop_back();
      }
      return true;
    default:
      if (!begins(frame.name(), kEngine)) return false;
      move(backward_);
      return true;
  }
}

Frame FrameTracker::enter(const at::RecordFunction& frame) {
  if (outermost_ != nullptr) {
    return Frame::kNested;
  }
  if (move_range(frame, +1)) {
    return Frame::kTransparent;
  }
  const OperatorInfo* info = find_operator(frame);
  if (info == nullptr || !info->counted || has_jagged(frame)) {
    return Frame::kTransparent;
  }
  outermost_ = &frame;
  operator_ = info;
  return Frame::kOutermost;
}

Frame FrameTracker::leave(const at::RecordFunction& frame) {
  if (&frame == outermost_) {
    outermost_ = nullptr;
    return Frame::kOutermost;
  }
  if (outermost_ != nullptr) {
    return Frame::kNested;
  }
  move_range(frame, -1);
  return Frame::kTransparent;
}

}  // namespace bayplan

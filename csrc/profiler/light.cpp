#include "profiler/light.h"

#include "profiler/operators.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <memory>

namespace bayplan {
namespace {

std::vector<uint32_t> buffer;
std::atomic<size_t> used{0};
std::atomic<uint64_t> session{0};
at::CallbackHandle handle = at::INVALID_CALLBACK_HANDLE;

struct LightState {
  uint64_t session = 0;
  FrameTracker tracker;
};

FrameTracker& tracker() {
  thread_local LightState state;
  const uint64_t now = session.load(std::memory_order_relaxed);
  if (state.session != now) {  // whatever an earlier recording left half-open is not ours
    state = LightState{now, FrameTracker()};
  }
  return state.tracker;
}

std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& frame) {
  FrameTracker& frames = tracker();
  if (frames.enter(frame) == Frame::kOutermost) {
    const size_t position = used.fetch_add(1, std::memory_order_relaxed);
    if (position < buffer.size()) {
      buffer[position] = frames.current()->id;
    }
  }
  return nullptr;
}

void on_end(const at::RecordFunction& frame, at::ObserverContext* /*context*/) { tracker().leave(frame); }

}  // namespace

void start_light(size_t capacity, bool inputs) {
  TORCH_CHECK(handle == at::INVALID_CALLBACK_HANDLE,
              "a light recording is already running in this process: stop it first");
  buffer.assign(capacity, 0);
  used = 0;
  ++session;
  handle = at::addThreadLocalCallback(
      at::RecordFunctionCallback(on_start, on_end).needsInputs(inputs).scopes({at::RecordScope::FUNCTION}));
}

std::vector<uint32_t> stop_light() {
  TORCH_CHECK(handle != at::INVALID_CALLBACK_HANDLE, "no light recording is running: start one first");
  at::removeCallback(handle);
  handle = at::INVALID_CALLBACK_HANDLE;
  const size_t count = used.load();
  TORCH_CHECK(count <= buffer.size(), count, " operators ran, but the light recording holds ", buffer.size(),
              ": raise its capacity");
  buffer.resize(count);
  return std::move(buffer);
}

}  // namespace bayplan

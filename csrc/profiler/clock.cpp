#include "profiler/clock.h"

#include <algorithm>
#include <chrono>
#include <cmath>

namespace bayplan {

int64_t host_now_ns() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

void StepClock::mark(int64_t host_ns) {
  host_ns_.push_back(host_ns - excluded_ns_);
  if (device_.is_cpu()) return;
  events_.push_back(recorded_event(current(), /*timed=*/true));
}

void StepClock::prepare(size_t marks) {
  host_ns_.reserve(marks);
  if (device_.is_cpu()) return;
  events_.reserve(marks);
  prepare_timed_events(current(), marks);
}

c10::Stream StepClock::current() const { return c10::impl::VirtualGuardImpl(device_.type()).getStream(device_); }

std::vector<int64_t> StepClock::host_elapsed_ns() const {
  std::vector<int64_t> elapsed;
  for (size_t i = 1; i < host_ns_.size(); ++i) {
    elapsed.push_back(host_ns_[i] - host_ns_.front());
  }
  return elapsed;
}

std::vector<int64_t> StepClock::elapsed_ns() {
  std::vector<int64_t> elapsed;
  if (device_.is_cpu()) elapsed = host_elapsed_ns();
  for (size_t i = 1; i < events_.size(); ++i) {
    events_[i]->synchronize();
    elapsed.push_back(std::llround(events_.front()->elapsedTime(*events_[i]) * 1e6));
  }
  int64_t latest = 0;
  for (int64_t& moment : elapsed) {  // marks on different streams need not be in order
    latest = moment = std::max(moment, latest);
  }
  return elapsed;
}

}  // namespace bayplan

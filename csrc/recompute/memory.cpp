#include "recompute/memory.h"

#include <c10/core/CachingDeviceAllocator.h>

namespace bayplan::recompute {

namespace {

bool asks_for_launches(Happened what, int32_t index) {
  switch (what) {
    case Happened::kNode:
    case Happened::kMade:
    case Happened::kRan:
    case Happened::kTake:
    case Happened::kTaken:
    case Happened::kEnd:
    case Happened::kWait:
    case Happened::kMark:
      return true;
    case Happened::kElse:
      return index == 0;
    default:
      return false;
  }
}

}  // namespace

int32_t MemoryLog::add_tape() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return tapes_++;
}

void MemoryLog::note(int32_t tape, Happened what, int32_t index) {
  constexpr auto all = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  const std::lock_guard<std::mutex> lock(mutex_);
  if (stopped_) return;
  c10::DeviceAllocator* allocator = c10::getDeviceAllocator(device_.type());
  const auto stats = allocator->getDeviceStats(device_.index());
  const int64_t now = stats.allocated_bytes[all].current;
  const auto requests = static_cast<int64_t>(stats.allocation[all].allocated + stats.allocation[all].freed);
  events_.push_back({tape, what, index, stats.allocated_bytes[all].peak, now, {}, requests});
  allocator->resetPeakStats(device_.index());
  if (launches_told_ && asks_for_launches(what, index)) {
    const std::optional<LaunchTimes> told = read_launches(device_);
    launches_told_ = told.has_value();
    events_.back().launched = told.value_or(LaunchTimes{});
  }
  for (size_t at = 0; at < followed_.size();) {
    Followed& one = followed_[at];
    if (!one.storage.expired()) {
      ++at;
      continue;
    }
    events_.push_back({one.tape, Happened::kDied, one.value, now, now, {}, requests});
    one = std::move(followed_.back());
    followed_.pop_back();
  }
}

void MemoryLog::stop() {
  const std::lock_guard<std::mutex> lock(mutex_);
  stopped_ = true;
  followed_.clear();
}

void MemoryLog::follow(int32_t tape, int32_t value, const c10::Storage& storage) {
  const std::lock_guard<std::mutex> lock(mutex_);
  followed_.push_back({tape, value, storage.getWeakStorageImpl()});
  const void* begin = storage.unsafeGetStorageImpl()->_mutable_data_ptr_no_checks().get();
  places_.push_back({tape, value, reinterpret_cast<uint64_t>(begin), events_.size()});
}

void MemoryLog::read(const c10::Storage& storage) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (stopped_ || events_.empty()) return;
  const int64_t now = events_.back().bytes, requests = events_.back().requests;
  for (const Followed& one : followed_) {
    if (one.storage._unsafe_get_target() != storage.unsafeGetStorageImpl()) continue;
    events_.push_back({one.tape, Happened::kRead, one.value, now, now, {}, requests});
  }
}

std::optional<std::vector<LaunchTimes>> MemoryLog::launches() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (launches_told_ && !since_.has_value()) since_ = read_launches(device_);
  if (!launches_told_ || !since_.has_value()) return std::nullopt;
  std::vector<LaunchTimes> all;
  for (const MemoryEvent& one : events_) all.push_back(one.launched);
  all.push_back(*since_);
  return all;
}

std::vector<MemoryEvent> MemoryLog::events() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return events_;
}

std::vector<MemoryPlace> MemoryLog::places() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return places_;
}

}  // namespace bayplan::recompute

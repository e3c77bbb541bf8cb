#include "follow/requests.h"

#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/csrc/profiler/orchestration/observer.h>

#include <algorithm>
#include <iterator>
#include <thread>
#include <utility>

#include "profiler/detailed.h"
#include "profiler/displaced.h"

namespace bayplan::swap {

namespace profiling = torch::profiler::impl;

// PyTorch takes whatever sits in this slot for a ProfilerStateBase, so it is one: disabled as a profiler of operators,
// enabled as one of memory. Called by allocators, some of which hold their lock: it only writes down.
class Requests::Listener final : public profiling::ProfilerStateBase, public ReportListener {
 public:
  explicit Listener(c10::Device device)
      : ProfilerStateBase(profiling::ProfilerConfig(profiling::ProfilerState::Disabled)), device_(device) {}

  bool memoryProfilingEnabled() const override { return true; }
  profiling::ActiveProfilerType profilerType() override { return profiling::ActiveProfilerType::NONE; }

  // Threads that the operator starts inherit the slot.
  void reportMemoryUsage(void* block, int64_t bytes, size_t /*total*/, size_t /*reserved*/, c10::Device of) override {
    on_report(block, bytes, of);
  }
  void reportOutOfMemory(int64_t bytes, size_t /*total*/, size_t /*reserved*/, c10::Device of) override {
    on_refused(bytes, of);
  }
  void on_refused(int64_t bytes, c10::Device of) override {
    if (of == device_ && std::this_thread::get_id() == thread_ && !Returning::on())
      refused = {static_cast<uint64_t>(bytes), events.size()};
  }
  void on_report(const void* block, int64_t bytes, c10::Device of) override {
    if (of != device_ || std::this_thread::get_id() != thread_) return;
    const auto begin = reinterpret_cast<uintptr_t>(block);
    if (bytes > 0) {
      if (!Returning::on()) take(begin, static_cast<uint64_t>(bytes));
      return;
    }
    const auto known =
        std::find_if(blocks.rbegin(), blocks.rend(), [&](const Block& one) { return one.begin == begin; });
    if (known == blocks.rend()) return;
    now -= known->bytes;
    events.push_back({0, known->number});
    blocks.erase(std::next(known).base());
  }

  std::vector<Event> events;
  size_t count = 0;
  std::vector<Block> blocks;
  uint64_t now = 0, peak = 0;
  Event refused = {};  // bytes, and how many events came before: what is given back as the operator fails comes later

 private:
  void take(uintptr_t begin, uint64_t bytes) {
    events.push_back({bytes, count});
    blocks.push_back({begin, bytes, count++});
    now += bytes;
    refused = {};
    peak = std::max(peak, now);
  }

  const c10::Device device_;
  const std::thread::id thread_ = std::this_thread::get_id();
};

Requests::Requests(c10::Device device) : listener_(std::make_shared<Listener>(device)) {
  if (recorded_here()) {
    report_listener = listener_.get();
  } else if (c10::ThreadLocalDebugInfo::get(c10::DebugInfoKind::PROFILER_STATE) == nullptr) {
    c10::ThreadLocalDebugInfo::_push(c10::DebugInfoKind::PROFILER_STATE, listener_);
  } else {
    return;
  }
  listens_ = complete_ = true;
}

// Slots are a stack: what the operator has left on top of ours (a profiler that outlives it) stays there.
void Requests::stop() {
  if (!std::exchange(listens_, false)) return;
  if (report_listener == listener_.get()) {
    report_listener = nullptr;
    complete_ = recorded_here();
    return;
  }
  complete_ = c10::ThreadLocalDebugInfo::get(c10::DebugInfoKind::PROFILER_STATE) == listener_.get();
  if (!complete_) return;
  try {
    c10::ThreadLocalDebugInfo::_pop(c10::DebugInfoKind::PROFILER_STATE);
  } catch (const c10::Error&) {
  }
}

const std::vector<Requests::Event>& Requests::events() const { return listener_->events; }

size_t Requests::count() const { return listener_->count; }

const std::vector<Requests::Block>& Requests::blocks() const { return listener_->blocks; }

uint64_t Requests::bytes() const { return listener_->now; }

uint64_t Requests::peak_bytes() const { return listener_->peak; }

std::vector<Requests::Event> Requests::until_refused() const {
  const Event& refused = listener_->refused;
  if (refused.bytes == 0) return {};
  const auto& all = listener_->events;
  std::vector<Event> way(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(refused.number));
  way.push_back({refused.bytes, listener_->count});
  return way;
}

}  // namespace bayplan::swap

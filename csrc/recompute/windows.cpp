#include "recompute/windows.h"

#include <pybind11/pybind11.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>

#include "follow/demand.h"
#include "profiler/operators.h"
#include "profiler/storages.h"
#include "recompute/recorder.h"

namespace bayplan::recompute {
namespace {

std::mutex watching;
std::vector<std::shared_ptr<Windows>>& watchers() {
  static auto* all = new std::vector<std::shared_ptr<Windows>>();
  return *all;
}
at::CallbackHandle handle = at::INVALID_CALLBACK_HANDLE;
// Windows that are told memory, or pause between operators: only then does an operator outside of regions pay for it.
std::atomic<int> looking{0};

std::shared_ptr<Windows> windows_of(c10::Device device) {
  const std::lock_guard<std::mutex> lock(watching);
  for (const auto& one : watchers()) {
    if (one->device() == device) return one;
  }
  return nullptr;
}

// The windows that a frame belongs to: it waits for a collective.
std::shared_ptr<Windows> windows_of(const at::RecordFunction& frame) {
  if (NotRecording::on()) return nullptr;
  const Recipe* recipe = find_recipe(frame);
  if (recipe == nullptr || !recipe->opens_window || frame.inputs().empty() || !frame.inputs()[0].isTensor()) {
    return nullptr;
  }
  return windows_of(frame.inputs()[0].toTensor().device());
}

struct OpenWindow final : at::ObserverContext {
  std::shared_ptr<Windows> windows, told;  // null: none
};

// The windows that look, where an operator on their device runs outside of regions: what the program lets go of is seen
// when it does.
std::shared_ptr<Windows> told_of(const at::RecordFunction& frame) {
  if (looking.load(std::memory_order_relaxed) == 0 || NotRecording::on() || recording_tape() != nullptr) return nullptr;
  std::shared_ptr<Windows> told;
  for (const c10::IValue& value : frame.inputs()) {
    for_each_tensor(value, [&](const at::Tensor& tensor) {
      if (told == nullptr && !tensor.is_cpu()) told = windows_of(tensor.device());
    });
    if (told != nullptr) break;
  }
  return told;
}

std::unique_ptr<at::ObserverContext> on_begin_of_window(const at::RecordFunction& frame) {
  pause_before(frame);
  auto open = std::make_unique<OpenWindow>();
  open->told = told_of(frame);
  if (open->told != nullptr) open->told->begin_operator(frame);
  open->windows = windows_of(frame);
  if (open->windows == nullptr) return open->told == nullptr ? nullptr : std::move(open);
  const pybind11::gil_scoped_acquire held;
  open->windows->begin_wait();
  return open;
}

void on_end_of_window(const at::RecordFunction& /*frame*/, at::ObserverContext* context) {
  if (context == nullptr) return;
  const auto* open = static_cast<OpenWindow*>(context);
  if (open->told != nullptr) open->told->end_operator();
  if (open->windows == nullptr) return;
  const pybind11::gil_scoped_acquire held;
  open->windows->end_wait();
}

}  // namespace

bool Windows::begin_wait_on(c10::Device device) {
  if (NotRecording::on()) return false;
  const std::shared_ptr<Windows> windows = windows_of(device);
  if (windows == nullptr || windows->waiting_) return false;
  if (windows->stream_.has_value() && swap::current_stream(device) != *windows->stream_) return false;
  windows->begin_wait();
  return true;
}

void Windows::end_wait_on(c10::Device device) {
  if (const std::shared_ptr<Windows> windows = windows_of(device)) windows->end_wait();
}

void Windows::watch() {
  if (!device_.is_cpu()) stream_ = swap::current_stream(device_);
  const std::lock_guard<std::mutex> lock(watching);
  for (const auto& one : watchers()) {
    TORCH_CHECK(one->device() != device_, "somebody else plans the windows of ", device_, ": stop that first");
  }
  watchers().push_back(shared_from_this());
  if (handle != at::INVALID_CALLBACK_HANDLE) return;
  handle = at::addGlobalCallback(at::RecordFunctionCallback(on_begin_of_window, on_end_of_window)
                                     .needsInputs(true)
                                     .scopes({at::RecordScope::FUNCTION}));
}

void Windows::stop() {
  const std::lock_guard<std::mutex> lock(watching);
  const auto self = std::find(watchers().begin(), watchers().end(), shared_from_this());
  if (self == watchers().end()) return;
  watchers().erase(self);
  windows_.clear();
  in_wait_ = nullptr;
  if (pausing_.exchange(false)) --looking;
  in_pause_ = nullptr;
  if (!watchers().empty()) return;
  at::removeCallback(handle);
  handle = at::INVALID_CALLBACK_HANDLE;
}

void Windows::plan(std::vector<Work> windows, std::function<void(int64_t)> in_wait) {
  windows_.assign(std::make_move_iterator(windows.begin()), std::make_move_iterator(windows.end()));
  in_wait_ = std::move(in_wait);
  planned_ = opened_;
}

uint32_t Windows::mark() {
  if (!device_.is_cpu()) return marks_.mark(swap::current_stream(device_));
  host_ns_.push_back(std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1));
  return static_cast<uint32_t>(host_ns_.size() - 1);
}

double Windows::at_us(uint32_t mark) const {
  if (device_.is_cpu()) return static_cast<double>(host_ns_.at(mark) - host_ns_.at(0)) / 1e3;
  marks_.wait(mark);
  return marks_.at_us(mark);
}

void Windows::begin_wait() {
  waiting_ = true;
  try {
    open();
  } catch (const pybind11::error_already_set& error) {
    if (error.matches(PyExc_KeyboardInterrupt)) PyErr_SetInterrupt();  // the program's, not ours
  } catch (const std::exception&) {
    // What could not run here runs when autograd asks for it, and says there why it cannot.
  }
  if (timed_) waits_.emplace_back(mark(), 0);
}

void Windows::end_wait() {
  if (!waiting_) return;
  waiting_ = false;
  if (timed_) waits_.back().second = mark();
}

Windows::~Windows() {
  if (log_ != nullptr) --looking;
  if (pausing_) --looking;
}

void Windows::tell(std::shared_ptr<MemoryLog> log) {
  if (log_ == nullptr) ++looking;
  log_ = std::move(log);
}

void Windows::begin_operator(const at::RecordFunction& frame) {
  if (log_ != nullptr) {
    log_->note(MemoryLog::kNobody, Happened::kElse, 0);
    note_reads(frame);
  }
  if (!pausing_.load(std::memory_order_relaxed)) return;
  const pybind11::gil_scoped_acquire held;
  if (!pausing_ || --before_pause_ >= 0 || (paused_on_.has_value() && swap::current_stream(device_) != *paused_on_))
    return;
  end_pause();
  swap::bring_in_arguments(frame);  // the guard may have looked already
}

void Windows::end_operator() {
  if (log_ != nullptr) log_->note(MemoryLog::kNobody, Happened::kElse, 1);
}

void Windows::pause_after(int64_t operators, std::function<void()> then) {
  end_pauses();
  ++looking;
  pausing_ = true;
  before_pause_ = operators;
  if (!device_.is_cpu()) paused_on_ = swap::current_stream(device_);
  in_pause_ = std::move(then);
}

void Windows::end_pause() {
  if (!pausing_.exchange(false)) return;
  --looking;
  const std::function<void()> then = std::exchange(in_pause_, nullptr);
  const NotRecording quiet;
  then();
}

void Windows::end_pauses() {
  while (pausing_) end_pause();
}

// Of operators that touch data: those are whom the swap engine's guard brings a storage back for.
void Windows::note_reads(const at::RecordFunction& frame) {
  const OperatorInfo* info = find_operator(frame);
  if (info == nullptr || !swap::touches_data(*info)) return;
  for (const c10::IValue& value : frame.inputs()) {
    for_each_tensor(value, [&](const at::Tensor& tensor) {
      if (const c10::Storage* storage = storage_on(device_, tensor)) log_->read(*storage);
    });
  }
}

int64_t Windows::open() {
  if (log_ != nullptr) log_->note(MemoryLog::kNobody, Happened::kWait, static_cast<int32_t>(opened_));
  const int64_t number = opened_++ - planned_;
  if (const std::function<void(int64_t)> in_wait = in_wait_) {
    const NotRecording quiet;
    in_wait(number);
  }
  if (windows_.empty()) return 0;
  const Work work = std::move(windows_.front());
  windows_.pop_front();
  int64_t ran = 0;
  for (const auto& [tape, nodes] : work) ran += tape->replay(nodes);
  return ran;
}

}  // namespace bayplan::recompute

// One file: the callbacks of one recording, which share its tables and their order.
#include "profiler/detailed.h"

#include "profiler/flops.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Logging.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/csrc/profiler/orchestration/observer.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <set>
#include <typeinfo>

namespace bayplan {
namespace {

constexpr char kBusy[] = "a detailed recording of device ";
constexpr char kBusyStill[] = " is already running in this process: stop it first";
constexpr size_t kUsualOperators = 4096;
constexpr size_t kMostTogether = 16;  // recordings of one thread
constexpr int kErrorsOnly = 2;        // c10's own numbering

ByDevice<std::atomic<DetailedRecorder*>> recording;
std::atomic<LaunchMeter> launch_meter{nullptr};
std::atomic<c10::DeviceType> metered{c10::DeviceType::CPU};
std::atomic<uint64_t> numbers{0};

struct ThreadState {
  uint64_t recording = 0;
  FrameTracker tracker;
  int64_t open = -1;                             // the operator that the thread is in
  int64_t flops = 0;                             // of the operator that the thread is in
  const at::RecordFunction* counting = nullptr;  // the frame whose arithmetic stands for all it calls
  std::optional<uint32_t> gradient;              // a storage about to become some leaf's gradient
  StorageSet inner;                              // of the operator of the forward pass that the thread is in
};

ThreadState& thread_state(c10::Device device, uint64_t recording) {
  thread_local ByDevice<std::unique_ptr<ThreadState>> states;
  std::unique_ptr<ThreadState>& state = states[device];
  if (state == nullptr || state->recording != recording) {
    state = std::make_unique<ThreadState>();
    state->recording = recording;
  }
  return *state;
}

}  // namespace

// The recordings of one thread, each of another device, for it and the autograd threads that work for it. Receives the
// allocators' reports: PyTorch's own code takes whatever sits in this slot for a ProfilerStateBase, so it is one:
// disabled as a profiler of operators, enabled as one of memory.
class Recordings final : public torch::profiler::impl::ProfilerStateBase {
 public:
  Recordings()
      : ProfilerStateBase(torch::profiler::impl::ProfilerConfig(torch::profiler::impl::ProfilerState::Disabled)) {}

  // Those of the calling thread; null where there are none.
  static Recordings* of_thread() {
    c10::DebugInfoBase* found = c10::ThreadLocalDebugInfo::get(c10::DebugInfoKind::PROFILER_STATE);
    return found != nullptr && typeid(*found) == typeid(Recordings) ? static_cast<Recordings*>(found) : nullptr;
  }

  void add(DetailedRecorder* recorder) { replace(nullptr, recorder); }
  // Whether it was the last; a thread may outlive the recording.
  bool remove(DetailedRecorder* recorder) {
    replace(recorder, nullptr);
    return std::all_of(all_.begin(), all_.end(), [](const auto& one) { return one.load() == nullptr; });
  }
  template <typename Visit>
  void for_each(const Visit& visit) const {
    const size_t most = most_.load(std::memory_order_relaxed);
    for (size_t place = 0; place < most; ++place) {
      if (DetailedRecorder* recorder = all_[place].load(std::memory_order_acquire)) visit(*recorder);
    }
  }

  bool memoryProfilingEnabled() const override { return true; }
  void reportMemoryUsage(void* block, int64_t bytes, size_t total, size_t /*reserved*/, c10::Device device) override {
    if (report_listener != nullptr) report_listener->on_report(block, bytes, device);
    for_each([&](DetailedRecorder& recorder) { recorder.on_memory(block, bytes, total, device); });
  }
  void reportOutOfMemory(int64_t bytes, size_t /*total*/, size_t /*reserved*/, c10::Device device) override {
    if (report_listener != nullptr) report_listener->on_refused(bytes, device);
  }
  torch::profiler::impl::ActiveProfilerType profilerType() override {
    return torch::profiler::impl::ActiveProfilerType::NONE;
  }

  at::CallbackHandle handle = at::INVALID_CALLBACK_HANDLE;

 private:
  void replace(DetailedRecorder* before, DetailedRecorder* after) {
    for (size_t place = 0; place < kMostTogether; ++place) {
      if (all_[place].load() != before) continue;
      all_[place].store(after, std::memory_order_release);
      if (most_.load() <= place) most_.store(place + 1);
      return;
    }
    TORCH_CHECK(before != nullptr, kMostTogether, " detailed recordings run on this thread already: stop one first");
  }

  std::array<std::atomic<DetailedRecorder*>, kMostTogether> all_{};
  std::atomic<size_t> most_{0};
};

namespace {

std::unique_ptr<at::ObserverContext> start_callback(const at::RecordFunction& frame) {
  if (const Recordings* own = Recordings::of_thread()) {
    own->for_each([&](DetailedRecorder& recorder) { recorder.on_start(frame); });
  }
  return nullptr;
}

void end_callback(const at::RecordFunction& frame, at::ObserverContext* /*context*/) {
  if (const Recordings* own = Recordings::of_thread()) {
    own->for_each([&](DetailedRecorder& recorder) { recorder.on_end(frame); });
  }
}

void leaving_callback(c10::StorageImpl& storage) {
  if (DetailedRecorder* recorder = recording[storage.device()].load(std::memory_order_acquire)) {
    recorder->on_leaving(storage);
  }
}

bool contains(const std::vector<uint32_t>& values, uint32_t value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

std::optional<LaunchTimes> ask_meter(c10::Device device) {
  const LaunchMeter meter = launch_meter.load();
  if (meter == nullptr || device.type() != metered.load()) return std::nullopt;
  int64_t numbers[8];
  meter(numbers);
  return LaunchTimes{numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], numbers[5], numbers[6], numbers[7]};
}

}  // namespace

bool recorded_here() { return Recordings::of_thread() != nullptr; }

void set_launch_meter(c10::DeviceType device, LaunchMeter meter) {
  metered.store(device);
  launch_meter.store(meter);
}

std::optional<LaunchTimes> read_launches(c10::Device device) {
  if (recording[device].load() != nullptr) return std::nullopt;
  return c10::impl::VirtualGuardImpl(device.type()).getDevice() == device ? ask_meter(device) : std::nullopt;
}

DetailedRecorder::DetailedRecorder(c10::Device device, bool timed)
    : device_(device), timed_(timed), storages_(device), clock_(device) {}

DetailedRecorder::~DetailedRecorder() { stop(); }

// ---- beginning and end ----------------------------------------------------------------------------------------------

void DetailedRecorder::start(const std::vector<at::Tensor>& resident) {
  TORCH_CHECK(!running_ && operators_.empty(), "this recorder has been used: make a new one for each step");
  TORCH_CHECK(recording[device_].load() == nullptr, kBusy, device_, kBusyStill);
  Recordings* together = Recordings::of_thread();
  TORCH_CHECK(together != nullptr || c10::ThreadLocalDebugInfo::get(c10::DebugInfoKind::PROFILER_STATE) == nullptr,
              "a torch.profiler is running on this thread and takes the memory reports that this profiler needs: stop "
              "it first");
  if (!device_.is_cpu()) {
    constexpr auto all = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    allocated_bytes_ =
        c10::getDeviceAllocator(device_.type())->getDeviceStats(device_.index()).allocated_bytes[all].current;
  }
  DetailedRecorder* nobody = nullptr;
  TORCH_CHECK(recording[device_].compare_exchange_strong(nobody, this), kBusy, device_, kBusyStill);
  running_ = true;
  number_ = ++numbers;
  operators_.reserve(kUsualOperators);
  if (timed_) clock_.prepare(kUsualOperators);
  join(together);
  log_level_ = FLAGS_caffe2_log_level;
  if (device_.is_cpu()) {
    register_resident(resident);
    FLAGS_caffe2_log_level = std::max(log_level_, kErrorsOnly);  // no warning for older blocks that it was not told of
  }
  leaving_observer.store(leaving_callback);
  read_launches();  // what ran before the step does not count
  clock_.mark(host_now_ns());
}

// Recordings of one thread share a callback and what receives the reports.
void DetailedRecorder::join(Recordings* together) {
  if (together != nullptr) return together->add(this);
  auto alone = std::make_shared<Recordings>();
  alone->add(this);
  using at::RecordScope;
  alone->handle = at::addThreadLocalCallback(
      at::RecordFunctionCallback(start_callback, end_callback)
          .needsInputs(true)
          .needsOutputs(true)
          .scopes({RecordScope::FUNCTION, RecordScope::BACKWARD_FUNCTION, RecordScope::USER_SCOPE}));
  c10::ThreadLocalDebugInfo::_push(c10::DebugInfoKind::PROFILER_STATE, alone);
}

void DetailedRecorder::leave() {
  Recordings* together = Recordings::of_thread();
  if (together == nullptr || !together->remove(this)) return;
  at::removeCallback(together->handle);
  guarded([] { c10::ThreadLocalDebugInfo::_pop(c10::DebugInfoKind::PROFILER_STATE); });
}

// The CPU's reporter knows only the blocks that were allocated while somebody listened. Told of the older ones, it
// reports their end like any other's.
void DetailedRecorder::register_resident(const std::vector<at::Tensor>& resident) {
  std::set<void*> seen;
  registering_ = true;
  for (const at::Tensor& tensor : resident) {
    const c10::Storage* storage = storage_on(device_, tensor);
    if (storage == nullptr || storage->nbytes() == 0) continue;
    void* block = storage->unsafeGetStorageImpl()->_mutable_data_ptr_no_checks().get();
    if (block != nullptr && seen.insert(block).second) {
      c10::profiledCPUMemoryReporter().New(block, storage->nbytes());
    }
  }
  registering_ = false;
}

void DetailedRecorder::stop() {
  if (!running_) {
    return;
  }
  running_ = false;
  guarded([&] { clock_.mark(host_now_ns()); });
  recording[device_].store(nullptr, std::memory_order_release);
  leave();
  if (device_.is_cpu()) FLAGS_caffe2_log_level = log_level_;
  settle_returns();
  if (!operators_.empty()) {  // what the tail of the step allocated belongs to its last operator
    OperatorRecord& last = operators_.back();
    last.peak_bytes = std::max(last.peak_bytes, window_peak_bytes_);
    last.allocated_peak_bytes = std::max(last.allocated_peak_bytes, window_allocated_peak_bytes_);
  }
}

template <typename Body>
void DetailedRecorder::guarded(Body body) {
  try {
    body();
  } catch (const std::exception& error) {
    if (failure_.empty()) {
      failure_ = error.what();
    }
  }
}

// ---- frames ---------------------------------------------------------------------------------------------------------

void DetailedRecorder::on_start(const at::RecordFunction& frame) {
  ThreadState& state = thread_state(device_, number_);
  if (state.tracker.within(frame)) {  // most frames: no lock, no clock
    if (timed_ && state.counting == nullptr) count_arithmetic(frame, find_operator(frame));
    return;
  }
  const int64_t began = entered();
  const std::lock_guard<std::mutex> lock(mutex_);
  guarded([&] {
    const bool accumulated = state.tracker.in_accumulation();
    if (state.tracker.enter(frame) == Frame::kOutermost) {
      begin_operator(frame);
      return;
    }
    compiled_ = compiled_ || is_compiled_region(frame.name());
    if (!accumulated && state.tracker.in_accumulation()) begin_accumulation(frame);
  });
  exclude_since(began);
}

void DetailedRecorder::on_end(const at::RecordFunction& frame) {
  ThreadState& state = thread_state(device_, number_);
  if (state.counting == &frame) state.counting = nullptr;
  const bool within = state.tracker.within(frame);
  if (within && (state.open < 0 || state.tracker.range() != Range::kOutside)) return;
  const int64_t began = entered();
  const std::lock_guard<std::mutex> lock(mutex_);
  if (within) {
    guarded([&] { note_inner_results(frame); });
    return exclude_since(began);
  }
  guarded([&] {
    const bool accumulated = state.tracker.in_accumulation();
    if (state.tracker.leave(frame) == Frame::kOutermost && state.open >= 0) end_operator(frame, began);
    if (accumulated && !state.tracker.in_accumulation()) end_accumulation();
  });
  exclude_since(began);
}

void DetailedRecorder::exclude_since(int64_t entered) {
  if (timed_) clock_.exclude(host_now_ns() - entered);
}

// What an operator makes inside and keeps (dropout its mask) is recognised later by its place among these. Only what
// the forward pass keeps ever leaves the device.
void DetailedRecorder::note_inner_results(const at::RecordFunction& frame) {
  ThreadState& state = thread_state(device_, number_);
  for (const c10::IValue& value : frame.outputs()) {
    for_each_tensor(value, [&](const at::Tensor& tensor) {
      const c10::Storage* storage = storage_on(device_, tensor);
      if (storage == nullptr) return;
      const auto [place, fresh] = state.inner.place(*storage);
      if (fresh) storages_.returned_inside(*storage, state.open, place);
    });
  }
}

// The outermost frame with a rule stands for all that it calls.
void DetailedRecorder::count_arithmetic(const at::RecordFunction& frame, const OperatorInfo* info) {
  ThreadState& state = thread_state(device_, number_);
  if (info == nullptr || info->flop_rule == FlopRule::kNone) return;
  state.counting = &frame;
  state.flops += count_flops(info->flop_rule, frame.inputs());
}

void DetailedRecorder::begin_operator(const at::RecordFunction& frame) {
  ThreadState& state = thread_state(device_, number_);
  const OperatorInfo* info = state.tracker.current();
  state.open = static_cast<int64_t>(operators_.size());
  state.flops = 0;
  state.inner.clear();
  ++open_;
  raise_peaks();
  settle_returns();
  operators_.push_back(
      OperatorRecord{info, state.tracker.range(), state.tracker.in_accumulation(), frame.threadId(), frame.seqNr()});
  operators_.back().live_start_bytes = level();
  const auto arguments = frame.inputs();
  for (size_t i = 0; i < arguments.size(); ++i) {
    const bool written = i < info->writes.size() && info->writes[i];
    for_each_tensor(arguments[i], [&](const at::Tensor& tensor) { add_tensor(tensor, written, false); });
  }
  if (timed_) count_arithmetic(frame, info);
}

void DetailedRecorder::end_operator(const at::RecordFunction& frame, int64_t host_ns) {
  ThreadState& state = thread_state(device_, number_);
  if (timed_) clock_.mark(host_ns);
  for (const c10::IValue& value : frame.outputs()) {
    for_each_tensor(value, [&](const at::Tensor& tensor) { add_tensor(tensor, false, true); });
  }
  settle_returns();
  OperatorRecord& record = operators_[state.open];
  for (const uint32_t storage : record.written) {
    if (!contains(record.outputs, storage)) {
      record.outputs.push_back(storage);
    }
  }
  settle_gradients(record);
  record.launch = read_launches();
  record.flops = state.flops;
  record.peak_bytes = std::max(window_peak_bytes_, record.live_start_bytes);
  record.allocated_peak_bytes = window_allocated_peak_bytes_;
  record.live_end_bytes = level();
  record.displaced_bytes = displaced();
  --open_;
  window_peak_bytes_ = window_allocated_peak_bytes_ = 0;
  if (open_ > 0) raise_peaks();
  state.open = -1;
}

std::optional<LaunchTimes> DetailedRecorder::read_launches() const {
  return timed_ ? ask_meter(device_) : std::nullopt;
}

void DetailedRecorder::add_tensor(const at::Tensor& tensor, bool written, bool result) {
  const int64_t op = thread_state(device_, number_).open;
  OperatorRecord& record = operators_[op];
  const auto storage = storages_.number(tensor, op, result);
  if (!storage.has_value()) {
    return;
  }
  const int64_t whole = storages_.records()[*storage].bytes;
  const bool sized = !tensor.is_nested() && !tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides();
  const auto size = sized ? static_cast<int64_t>(tensor.numel() * tensor.element_size()) : whole;
  const int64_t touched = std::min(size, whole);  // an expanded view is read once
  record.bytes += written ? 2 * touched : touched;
  if (result && contains(record.written, *storage)) {
    record.bytes -= touched;  // already counted as written
  }
  (result ? record.outputs : record.inputs).push_back(*storage);
  if (written) {
    record.written.push_back(*storage);
  }
}

// ---- gradients ------------------------------------------------------------------------------------------------------

// Autograd either keeps the storage that it hands to the leaf's node, or runs an operator that copies it or adds to it.
void DetailedRecorder::begin_accumulation(const at::RecordFunction& frame) {
  ThreadState& state = thread_state(device_, number_);
  state.gradient.reset();
  for (const c10::IValue& value : frame.inputs()) {
    if (value.isTensor()) {
      state.gradient = storages_.number(value.toTensor(), static_cast<int64_t>(operators_.size()), false);
    }
  }
}

void DetailedRecorder::settle_gradients(OperatorRecord& record) {
  if (!record.accumulation) {
    return;
  }
  thread_state(device_, number_).gradient.reset();
  for (const uint32_t storage : record.outputs) {
    storages_.mark_gradient(storage);
  }
}

void DetailedRecorder::end_accumulation() {
  ThreadState& state = thread_state(device_, number_);
  if (state.gradient.has_value()) {
    storages_.mark_gradient(*state.gradient);
    state.gradient.reset();
  }
}

// ---- memory ---------------------------------------------------------------------------------------------------------

void DetailedRecorder::on_memory(const void* block, int64_t bytes, size_t total_bytes, c10::Device device) {
  if (device != device_ || Unrecorded::on()) {
    return;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  guarded([&] {
    const int64_t op = thread_state(device_, number_).open;
    int64_t change = bytes;
    const bool returns = bytes >= 0 && Returning::on();
    if (!registering_) note_request(block, bytes, op);
    if (registering_ || returns) {
      storages_.resident(block, bytes);
    } else if (bytes >= 0) {
      const auto request = static_cast<uint32_t>(requests_.size() - 1);
      storages_.allocated(block, bytes, op < 0 ? std::nullopt : std::optional<int64_t>(op), request);
    } else {
      change = -storages_.freed(block);  // the CPU's reporter may remember another block's size
    }
    allocated_bytes_ = device_.is_cpu() ? allocated_bytes_ + change : static_cast<int64_t>(total_bytes);
    if (bytes >= 0) returns ? raise_by_return() : raise_peaks();
  });
}

void DetailedRecorder::note_request(const void* block, int64_t bytes, int64_t op) {
  int64_t stream = 0;
  if (bytes > 0 && !device_.is_cpu()) {
    stream = c10::impl::VirtualGuardImpl(device_.type()).getStream(device_).id();
  }
  const int64_t when = op >= 0 ? op : -1 - static_cast<int64_t>(operators_.size());
  requests_.push_back(MemoryReport{reinterpret_cast<uint64_t>(block), bytes, when, stream});
}

void DetailedRecorder::raise_peaks() {
  window_peak_bytes_ = std::max(window_peak_bytes_, level());
  window_allocated_peak_bytes_ = std::max(window_allocated_peak_bytes_, allocated_bytes_);
}

// What comes back was in use all the while: nothing but what is really there rises.
void DetailedRecorder::raise_by_return() {
  if (operators_.empty()) return raise_peaks();
  returned_peak_bytes_ = std::max(returned_peak_bytes_, allocated_bytes_);
}

// It belongs to the operator that it came back for; where that one has less in use, because something went meanwhile,
// to the operator before, which ended with as much.
void DetailedRecorder::settle_returns() {
  const bool before = returned_peak_bytes_ > window_peak_bytes_ && !operators_.empty();
  int64_t& peak = before ? operators_.back().allocated_peak_bytes : window_allocated_peak_bytes_;
  peak = std::max(peak, returned_peak_bytes_);
  returned_peak_bytes_ = 0;
}

void DetailedRecorder::on_leaving(c10::StorageImpl& storage) {
  const std::lock_guard<std::mutex> lock(mutex_);
  guarded([&] { storages_.leaving(storage); });
}

}  // namespace bayplan

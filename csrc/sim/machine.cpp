#include "sim/machine.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <unordered_set>

#include "sim/pressure.h"

namespace sim {
namespace {

constexpr size_t kMostStreams = 33;    // The default stream and a pool of 32, as on CUDA; then the pool repeats.
constexpr Nanoseconds kPollNs = 1000;  // So that a program that polls an event makes progress.

thread_local size_t tls_stream = 0;
thread_local const char* tls_label = "";

}  // namespace

const char* intern(const std::string& text) {
  static std::mutex guard;
  static auto* texts = new std::unordered_set<std::string>();
  std::lock_guard<std::mutex> held(guard);
  return texts->insert(text).first->c_str();
}

void check_index(c10::DeviceIndex index) {
  TORCH_CHECK(index <= 0, "there is one device sim, not sim:", static_cast<int>(index), ": use sim:0");
}

const char* exchange_label(const char* label) { return std::exchange(tls_label, label); }

Machine& Machine::get() {
  static auto* machine = new Machine();  // Never destroyed: tensors may outlive static destructors.
  return *machine;
}

void Machine::configure(const DeviceModel& model) {
  std::lock_guard<std::recursive_mutex> held(lock);
  model_ = model;
}

void Machine::reset() {
  std::lock_guard<std::recursive_mutex> held(lock);
  host_wait_all();
  for (StreamState& stream : streams_) stream.free_at = 0;
  link_free_at_.fill(0);
  host_now_ = 0;
  ++generation_;
  counters = {};
  races.clear();
  trace.clear();
}

size_t Machine::current_stream() { return tls_stream; }
size_t Machine::exchange_stream(size_t stream) { return std::exchange(tls_stream, stream); }

size_t Machine::new_stream() {
  std::lock_guard<std::recursive_mutex> held(lock);
  if (streams_.size() < kMostStreams) {
    streams_.emplace_back();
    return streams_.size() - 1;
  }
  return 1 + next_stream_++ % (kMostStreams - 1);
}

void Machine::check_stream(size_t stream) const {
  TORCH_CHECK(stream < streams_.size(), "stream ", stream, " of device sim does not exist: there are ", streams_.size(),
              "; create one with torch.Stream(device='sim')");
}

uint64_t Machine::issue(size_t stream) {
  std::lock_guard<std::recursive_mutex> held(lock);
  StreamState& state = streams_[stream];
  state.past.join(host_past_);
  copies.settle(state.past);
  state.past.raise(stream, ++state.issued);
  return state.issued;
}

Span Machine::run_kernel(size_t stream, const char* op, OpClass op_class, Nanoseconds duration, int64_t bytes) {
  std::lock_guard<std::recursive_mutex> held(lock);
  StreamState& state = streams_[stream];
  host_now_ += model_.launch_ns;
  ++launched_;
  const Nanoseconds start = std::max(state.free_at, host_now_);
  const Span span{start, start + model_.with_noise(duration, counters.kernels++)};
  state.free_at = span.end;
  meter(stream, span);
  note(stream, op, name_of(op_class), span, bytes);
  return span;
}

Span Machine::run_copy(size_t stream, const char* op, Direction direction, size_t bytes) {
  std::lock_guard<std::recursive_mutex> held(lock);
  StreamState& state = streams_[stream];
  const bool to_host = direction == Direction::kToHost;
  Nanoseconds& link = link_free_at_[to_host && !model_.half_duplex ? 1 : 0];
  host_now_ += model_.launch_ns;
  const Nanoseconds start = std::max({state.free_at, host_now_, link});
  const Span span{start, start + model_.transfer_ns(direction, bytes)};
  state.free_at = link = span.end;
  meter(stream, span);
  (to_host ? counters.bytes_to_host : counters.bytes_to_device) += bytes;
  note(stream, op, to_host ? "to host" : "to device", span, static_cast<int64_t>(bytes));
  return span;
}

void Machine::meter(size_t stream, Span span) {
  if (stream == metered_) {
    meter_.kernel(model_.launch_ns, span.end - span.start);
  } else {
    meter_.spend(model_.launch_ns);
  }
}

LaunchReading Machine::read_launches() {
  std::lock_guard<std::recursive_mutex> held(lock);
  metered_ = current_stream();
  return meter_.read();
}

void Machine::note(size_t stream, const char* op, const char* kind, Span span, int64_t bytes) {
  if (tracing) trace.push_back({stream, op, tls_label, kind, span.start, span.end, bytes});
}

Point Machine::tail(size_t stream) {
  std::lock_guard<std::recursive_mutex> held(lock);
  return {streams_[stream].free_at, past(stream), generation_};
}

Point Machine::moment(size_t stream) const { return {std::max(streams_[stream].free_at, host_now_), {}, generation_}; }

Point Machine::record(size_t stream) {
  std::lock_guard<std::recursive_mutex> held(lock);
  Point point = moment(stream);
  point.past = past(stream);
  return point;
}

void Machine::wait(size_t stream, const Point& point) {
  std::lock_guard<std::recursive_mutex> held(lock);
  StreamState& state = streams_[stream];
  state.free_at = std::max(state.free_at, time_of(point));
  state.past.join(point.past);
}

void Machine::host_wait(const Point& point) {
  std::lock_guard<std::recursive_mutex> held(lock);
  note_wait();
  host_jump(point);
  meter_.wait();
  learn(point);
}

void Machine::note_wait() {
  if (is_asking_relief()) ++waits_in_callback_;
}

void Machine::learn(const Point& point) {
  host_past_.join(point.past);
  copies.settle(host_past_);
}

void Machine::host_jump(const Point& point) {
  std::lock_guard<std::recursive_mutex> held(lock);
  host_now_ = std::max(host_now_, time_of(point));
}

void Machine::host_spend(Nanoseconds duration) {
  std::lock_guard<std::recursive_mutex> held(lock);
  host_now_ += duration;
  meter_.spend(duration);
}

bool Machine::host_query(const Point& point) {
  std::lock_guard<std::recursive_mutex> held(lock);
  if (reached(point)) {
    learn(point);
    return true;
  }
  host_spend(kPollNs);
  return false;
}

void Machine::host_wait_all() {
  std::lock_guard<std::recursive_mutex> held(lock);
  for (size_t stream = 0; stream < streams_.size(); ++stream) host_wait(tail(stream));
}

VectorClock Machine::past(size_t stream) const {
  VectorClock all = streams_[stream].past;
  all.join(host_past_);
  return all;
}

Access Machine::access(size_t stream, const char* op, bool write, size_t begin, size_t end) const {
  return {streams_[stream].issued, static_cast<uint32_t>(stream), write, op, tls_label, begin, end, nullptr};
}

}  // namespace sim

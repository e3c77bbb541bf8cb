// One file: the clocks, which every method moves under one lock.
#include "sim/machine.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <unordered_set>

#include "sim/pressure.h"

namespace sim {
namespace {

constexpr size_t kMostStreams = 33;   // The default stream and a pool of 32, as on CUDA; then the pool repeats.
constexpr size_t kMostPlaces = 1000;  // Behind the pool, streams of their own, which no program is given.
constexpr size_t kHostPlace = kMostPlaces - 2;  // The host's program, and behind it its worker.
constexpr size_t kIdsPerDevice = 1000;
constexpr Nanoseconds kPollNs = 1000;  // So that a program that polls an event makes progress.
constexpr size_t kNowhere = kMostDevices;

// By device, one more than the current stream's number; 0: the default stream.
thread_local std::array<uint16_t, kMostDevices> tls_streams{};
thread_local size_t tls_host = kNowhere;  // The device whose host the thread was last.
thread_local const char* tls_label = "";

}  // namespace

const char* intern(const std::string& text) {
  static std::mutex guard;
  static auto* texts = new std::unordered_set<std::string>();
  std::lock_guard<std::mutex> held(guard);
  return texts->insert(text).first->c_str();
}

const char* exchange_label(const char* label) { return std::exchange(tls_label, label); }

Machine& Machine::get() {
  static auto* machine = new Machine();  // Never destroyed: tensors may outlive static destructors.
  return *machine;
}

Machine::Machine() {
  streams_.reserve(kMostDevices * kMostPlaces);  // Read without the lock: they must not move.
  numbers_.resize(kMostDevices * kMostPlaces);
  set_devices(1);
}

void Machine::configure(std::vector<DeviceModel> models, const std::vector<bool>& joins_devices) {
  std::lock_guard<std::recursive_mutex> held(lock);
  models_ = std::move(models);
  calendar.configure(joins_devices);
}

void Machine::set_devices(size_t count) {
  std::lock_guard<std::recursive_mutex> held(lock);
  for (size_t device = 0; device < count; ++device)
    if (hosts_[device].streams == 0)
      defaults_[device] = hosts_[device].metered = add_stream(device, hosts_[device].streams++);
}

void Machine::reset() {
  std::lock_guard<std::recursive_mutex> held(lock);
  VectorClock all;
  for (size_t stream = 0; stream < streams_.size(); ++stream) all.join(past(stream));
  copies.settle(all);
  for (StreamState& stream : streams_) {
    stream.free_at = 0;
    stream.comms.clear();
  }
  for (Host& host : hosts_) {
    host.meter.wait(kForDevice);
    host.past.join(all);
    host.now = 0;
    host.counters = {};
    host.noted = 0;
  }
  calendar.clear();
  pending_comms_ = 0;
  ++generation_;
  races.clear();
  trace_.clear();
  comm_finished_.notify_all();
}

size_t Machine::current_stream(size_t device) const {
  const uint16_t set = tls_streams[device];
  return set == 0 ? defaults_[device] : set - 1;
}

size_t Machine::exchange_stream(size_t stream) {
  const size_t device = device_of(stream), before = current_stream(device);
  tls_streams[device] = static_cast<uint16_t>(stream + 1);
  return before;
}

size_t Machine::add_stream(size_t device, size_t place, Doer doer) {
  streams_.emplace_back();
  streams_.back().device = device;
  streams_.back().doer = doer;
  streams_.back().id = static_cast<c10::StreamId>(device * kIdsPerDevice + place);
  numbers_[device * kMostPlaces + place] = static_cast<uint16_t>(streams_.size());
  return streams_.size() - 1;
}

size_t Machine::stream_of(Doer doer, size_t device) {
  std::lock_guard<std::recursive_mutex> held(lock);
  const size_t place = doer == Doer::kHost ? kHostPlace : kHostPlace + 1;
  const size_t found = numbers_[device * kMostPlaces + place];
  return found > 0 ? found - 1 : add_stream(device, place, doer);
}

size_t Machine::new_stream(size_t device) {
  std::lock_guard<std::recursive_mutex> held(lock);
  Host& host = hosts_[device];
  if (host.streams < kMostStreams) return add_stream(device, host.streams++);
  const size_t local = 1 + host.next_of_pool++ % (kMostStreams - 1);
  return number_of(static_cast<c10::StreamId>(device * kIdsPerDevice + local));
}

size_t Machine::own_stream(size_t device, size_t index) {
  std::lock_guard<std::recursive_mutex> held(lock);
  const size_t local = kMostStreams + index;
  TORCH_CHECK(local < kHostPlace, "device sim:", device, " has ", kHostPlace - kMostStreams,
              " streams for operations between ranks, and needs stream ", index, ": use fewer groups");
  const size_t known = numbers_[device * kMostPlaces + local];
  return known > 0 ? known - 1 : add_stream(device, local);
}

size_t Machine::number_of(c10::StreamId id) const {
  const size_t device = static_cast<size_t>(id) / kIdsPerDevice, local = static_cast<size_t>(id) % kIdsPerDevice;
  const bool possible = id >= 0 && device < kMostDevices && local < kMostPlaces;
  const size_t found = possible ? numbers_[device * kMostPlaces + local] : 0;
  TORCH_CHECK(found > 0, "stream ", id, " of device sim does not exist: there are ", streams_.size(),
              "; create one with torch.Stream(device='sim')");
  return found - 1;
}

std::string Machine::stream_name(size_t stream) const {
  const StreamState& state = streams_[stream];
  std::string name = "stream " + std::to_string(static_cast<size_t>(state.id) % kIdsPerDevice);
  if (state.doer != Doer::kStream) name = state.doer == Doer::kHost ? "the host" : "the host's worker";
  return device_count() == 1 ? name : name + " of sim:" + std::to_string(state.device);
}

Machine::Host& Machine::turn_to(size_t device) {
  std::lock_guard<std::recursive_mutex> held(lock);
  Host& host = hosts_[device];
  if (tls_host == device) return host;
  if (tls_host != kNowhere) {
    host.now = std::max(host.now, hosts_[tls_host].now);
    host.past.join(hosts_[tls_host].past);
  }
  tls_host = device;
  return host;
}

uint64_t Machine::issue(size_t stream) {
  std::lock_guard<std::recursive_mutex> held(lock);
  StreamState& state = streams_[stream];
  Host& host = turn_to(state.device);
  state.past.join(host.past);
  copies.settle(state.past);
  state.past.raise(stream, ++state.issued);
  if (state.doer == Doer::kHost) host.past.raise(stream, state.issued);  // Before all that it does and launches next.
  return state.issued;
}

Span Machine::run_kernel(size_t stream, const char* op, OpClass op_class, Nanoseconds duration, int64_t bytes) {
  std::lock_guard<std::recursive_mutex> held(lock);
  StreamState& state = streams_[stream];
  Host& host = turn_to(state.device);
  const DeviceModel& model = models_[state.device];
  host.now += model.launch_ns;
  ++host.launched;
  const Nanoseconds start = std::max(state.free_at, host.now);
  const Span span{start, start + model.with_noise(duration, state.device, host.counters.kernels++)};
  state.free_at = span.end;
  meter(stream, span);
  note(stream, op, name_of(op_class), span, bytes);
  return span;
}

Span Machine::run_host_task(size_t worker, const char* op, Nanoseconds duration) {
  std::lock_guard<std::recursive_mutex> held(lock);
  StreamState& state = streams_[worker];
  const Nanoseconds start = std::max(state.free_at, turn_to(state.device).now);
  const Span span{start, start + duration};
  state.free_at = span.end;
  note(worker, op, "host", span, 0);
  return span;
}

Span Machine::transfer(size_t stream, const char* op, const char* kind, std::initializer_list<const LinkModel*> hops,
                       size_t bytes) {
  StreamState& state = streams_[stream];
  Host& host = turn_to(state.device);
  host.now += models_[state.device].launch_ns;
  Span span{0, std::max(state.free_at, host.now)};
  for (const LinkModel* hop : hops) {
    const Nanoseconds duration = hop->transfer_ns(bytes), start = calendar.copy(hop->lane, span.end, duration);
    if (hop == *hops.begin()) span.start = start;
    span.end = start + duration;
  }
  state.free_at = span.end;
  meter(stream, span, *hops.begin() == &models_[state.device].link[static_cast<size_t>(Direction::kToHost)]);
  note(stream, op, kind, span, static_cast<int64_t>(bytes));
  return span;
}

Span Machine::run_copy(size_t stream, const char* op, Direction direction, size_t bytes) {
  std::lock_guard<std::recursive_mutex> held(lock);
  const bool to_host = direction == Direction::kToHost;
  const size_t device = streams_[stream].device;
  Counters& counted = hosts_[device].counters;
  (to_host ? counted.bytes_to_host : counted.bytes_to_device) += bytes;
  return transfer(stream, op, to_host ? "to host" : "to device",
                  {&models_[device].link[static_cast<size_t>(direction)]}, bytes);
}

Span Machine::run_peer_copy(size_t stream, const char* op, size_t target, size_t bytes) {
  std::lock_guard<std::recursive_mutex> held(lock);
  const size_t source = streams_[stream].device;
  hosts_[source].counters.bytes_to_peers += bytes;
  const auto direct = models_[source].peers.find(target);
  if (direct != models_[source].peers.end()) return transfer(stream, op, "peer", {&direct->second}, bytes);
  const LinkModel& out = models_[source].link[static_cast<size_t>(Direction::kToHost)];
  const LinkModel& in = models_[target].link[static_cast<size_t>(Direction::kToDevice)];
  return transfer(stream, op, "peer", {&out, &in}, bytes);
}

Nanoseconds Machine::issue_comm(size_t stream, uint64_t tick, const char* op) {
  std::lock_guard<std::recursive_mutex> held(lock);
  StreamState& state = streams_[stream];
  Host& host = turn_to(state.device);
  const Nanoseconds launch = models_[state.device].launch_ns;
  host.now += launch;
  host.meter.spend(launch);
  state.comms.push_back({tick, state.past.before(stream), op, tls_label, host.noted++});
  ++pending_comms_;
  return std::max(state.free_at, host.now);
}

std::vector<PendingComm> Machine::finish_comm(const std::vector<size_t>& streams, const char* op, Span span,
                                              int64_t bytes) {
  std::lock_guard<std::recursive_mutex> held(lock);
  VectorClock all;
  for (size_t stream : streams) {
    const auto& waiting = streams_[stream].comms;
    TORCH_CHECK(!waiting.empty(), "no collective was issued on ", stream_name(stream), " that '", op,
                "' could finish: call comm_issue first");
    all.join(waiting.front().past);
  }
  std::vector<PendingComm> parts;
  for (size_t stream : streams) {
    StreamState& state = streams_[stream];
    parts.push_back(std::move(state.comms.front()));
    state.comms.pop_front();
    --pending_comms_;
    for (PendingComm& later : state.comms) later.past.join(all);
    if (!state.comms.empty()) races.judge(stream, state.comms.front().tick, state.comms.front().past);
    state.past.join(all);
    state.free_at = std::max(state.free_at, span.end);
    if (!tracing) continue;
    const PendingComm& part = parts.back();
    trace_.push_back({state.device, part.order, state.id, op, part.label, "comm", span.start, span.end, bytes});
  }
  comm_finished_.notify_all();
  return parts;
}

void Machine::settle_overtaken(const std::vector<size_t>& streams, const std::vector<PendingComm>& parts) {
  std::lock_guard<std::recursive_mutex> held(lock);
  VectorClock overtaken;
  for (size_t i = 0; i < streams.size(); ++i) {
    const size_t member = streams[i];
    const uint64_t tick = parts[i].tick;
    bool late = streams_[member].issued > tick;
    for (size_t other = 0; other < streams_.size(); ++other)
      late = late || (other != member && streams_[other].past.of(member) >= tick);
    for (const Host& host : hosts_) late = late || host.past.of(member) >= tick;
    if (late) overtaken.raise(member, tick);
  }
  copies.settle(overtaken);
}

bool Machine::has_comms_before(const VectorClock& past) const {
  if (pending_comms_ == 0) return false;
  for (size_t stream = 0; stream < streams_.size(); ++stream)
    if (!streams_[stream].comms.empty() && streams_[stream].comms.front().tick <= past.of(stream)) return true;
  return false;
}

void Machine::await_comms(size_t stream) {
  std::unique_lock<std::recursive_mutex> held(lock);
  if (comm_waiter && has_comms_before(past(stream))) {
    held.unlock();
    comm_waiter(streams_[stream].device);
    held.lock();
  }
  comm_finished_.wait(held, [&] { return !has_comms_before(past(stream)); });
}

void Machine::await_comms_of(size_t device) {
  for (size_t stream = 0; stream < streams_.size(); ++stream)
    if (streams_[stream].device == device) await_comms(stream);
}

void Machine::meter(size_t stream, Span span, bool is_to_host) {
  Host& host = hosts_[streams_[stream].device];
  const Nanoseconds launch = models_[streams_[stream].device].launch_ns;
  if (stream == host.metered) {
    host.meter.kernel(launch, span.end - span.start, is_to_host);
  } else {
    host.meter.other(launch, span.end - span.start);
  }
}

LaunchReading Machine::read_launches() {
  std::lock_guard<std::recursive_mutex> held(lock);
  Host& host = hosts_[current_device()];
  LaunchReading reading = host.meter.read();
  reading.stream = streams_[std::exchange(host.metered, current_stream())].id;
  return reading;
}

void Machine::note(size_t stream, const char* op, const char* kind, Span span, int64_t bytes) {
  const StreamState& state = streams_[stream];
  const uint64_t order = hosts_[state.device].noted++;
  if (tracing) trace_.push_back({state.device, order, state.id, op, tls_label, kind, span.start, span.end, bytes});
}

std::vector<TraceRecord> Machine::sorted_trace() const {
  std::vector<TraceRecord> all = trace_;
  std::sort(all.begin(), all.end(), [](const TraceRecord& a, const TraceRecord& b) {
    return std::make_pair(a.device, a.order) < std::make_pair(b.device, b.order);
  });
  return all;
}

Point Machine::tail(size_t stream) {
  std::lock_guard<std::recursive_mutex> held(lock);
  return {streams_[stream].free_at, past(stream), generation_};
}

Point Machine::moment(size_t stream) const {
  const StreamState& state = streams_[stream];
  return {std::max(state.free_at, hosts_[state.device].now), {}, generation_};
}

Point Machine::record(size_t stream) {
  std::lock_guard<std::recursive_mutex> held(lock);
  const StreamState& state = streams_[stream];
  ++hosts_[state.device].counters.event_records;
  if (state.doer == Doer::kWorker) return {state.free_at, state.past, generation_};
  const Host& host = hosts_[tls_host == kNowhere ? state.device : tls_host];
  Point point{std::max(state.free_at, host.now), state.past, generation_};
  point.past.join(host.past);
  return point;
}

void Machine::wait(size_t stream, const Point& point) {
  std::lock_guard<std::recursive_mutex> held(lock);
  StreamState& state = streams_[stream];
  ++hosts_[state.device].counters.stream_waits;
  state.free_at = std::max(state.free_at, time_of(point));
  state.past.join(point.past);
}

void Machine::host_wait(const Point& point, HostWait what) {
  std::lock_guard<std::recursive_mutex> held(lock);
  note_wait();
  Host& host = turn_to(current_device());
  // For other streams, and for moments that are over, nobody waits.
  if (time_of(point) >= std::min(streams_[host.metered].free_at, host.now + 1)) host.meter.wait(what);
  host_jump(point);
  learn(host, point);
}

void Machine::note_wait() {
  if (is_asking_relief()) ++waits_in_callback_;
}

void Machine::learn(Host& host, const Point& point) {
  host.past.join(point.past);
  copies.settle(host.past);
}

void Machine::host_jump(const Point& point) {
  std::lock_guard<std::recursive_mutex> held(lock);
  Host& host = turn_to(current_device());
  host.now = std::max(host.now, time_of(point));
}

void Machine::host_spend(Nanoseconds duration) {
  std::lock_guard<std::recursive_mutex> held(lock);
  Host& host = turn_to(current_device());
  host.now += duration;
  host.meter.spend(duration);
}

bool Machine::host_query(const Point& point) {
  std::lock_guard<std::recursive_mutex> held(lock);
  Host& host = turn_to(current_device());
  if (reached(point)) {
    learn(host, point);
    return true;
  }
  host_spend(kPollNs);
  return false;
}

void Machine::host_wait_all() {
  std::lock_guard<std::recursive_mutex> held(lock);
  const size_t device = current_device();
  for (size_t stream = 0; stream < streams_.size(); ++stream)
    if (streams_[stream].device == device && doer_of(stream) == Doer::kStream) host_wait(tail(stream), kForDevice);
}

VectorClock Machine::past(size_t stream) const {
  VectorClock all = streams_[stream].past;
  all.join(hosts_[streams_[stream].device].past);
  return all;
}

Access Machine::access(size_t stream, const char* op, bool write, size_t begin, size_t end) const {
  return {streams_[stream].issued, static_cast<uint32_t>(stream), write, op, tls_label, begin, end, nullptr};
}

}  // namespace sim

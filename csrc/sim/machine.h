// The modelled machine: its devices with their streams, links and hosts, and the order that the program gives them.
#pragma once
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <array>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "sim/calendar.h"
#include "sim/clock.h"
#include "sim/copies.h"
#include "sim/cost.h"
#include "sim/devices.h"
#include "sim/launch_meter.h"
#include "sim/races.h"

namespace sim {

// Whose operations a vector clock counts: a device's streams, its host's program, a worker of its host.
enum class Doer : uint8_t { kStream, kHost, kWorker };

struct TraceRecord {
  size_t device;
  uint64_t order;  // Its place among the device's records: that of its issue.
  c10::StreamId stream;
  const char* op;
  const char* label;
  const char* kind;  // An operator class, "to device", "to host", "peer", "comm" or "host".
  Nanoseconds start;
  Nanoseconds end;
  int64_t bytes;
};

struct Counters {
  uint64_t kernels = 0;
  uint64_t fallbacks = 0;  // Operators that ran through the boxed fallback, free ones included.
  uint64_t bytes_to_device = 0;
  uint64_t bytes_to_host = 0;
  uint64_t event_queries = 0;  // Looks of the allocator at an event of a recorded stream.
  uint64_t bytes_to_peers = 0;
  uint64_t event_records = 0;  // Events that a stream was given to record,
  uint64_t stream_waits = 0;   // and those that one was told to wait for.
};

// A member's part of a collective that has been issued and not finished.
struct PendingComm {
  uint64_t tick;
  VectorClock past;  // What happened before it.
  const char* op;
  const char* label;
  uint64_t order;  // For its trace record.
};

// One process-wide machine. Every method takes the lock itself; it is recursive, so that a caller may hold it over
// several. Streams have numbers in the order of their making, by which vector clocks count, and ids (c10's) by device.
//
// Each device has a host, since a rank is a thread with its own device. A thread that turns from one device to another
// takes along what its host knows and its time: a program of one thread on several devices has one host.
class Machine {
 public:
  static Machine& get();

  // One model a device, and by lane of their links whether it joins devices (`calendar`).
  void configure(std::vector<DeviceModel> models, const std::vector<bool>& joins_devices);
  const DeviceModel& model() const { return models_[current_device()]; }
  const DeviceModel& model(size_t device) const { return models_[device]; }
  // Gives each device of the count a default stream and a host.
  void set_devices(size_t count);
  // Waits for everything, then sets all clocks, counters, races and traces to zero. Streams and blocks stay.
  void reset();

  // Streams. The current one belongs to the thread and the device.
  static size_t current_stream() { return get().current_stream(current_device()); }
  size_t current_stream(size_t device) const;
  size_t exchange_stream(size_t stream);  // Of the stream's device.
  size_t default_stream(size_t device) const { return defaults_[device]; }
  size_t new_stream(size_t device);
  // A device's stream that is no program's: the same each time for an index.
  size_t own_stream(size_t device, size_t index);
  size_t device_of(size_t stream) const { return streams_[stream].device; }
  c10::StreamId id_of(size_t stream) const { return streams_[stream].id; }
  size_t number_of(c10::StreamId id) const;  // Throws where there is no such stream.
  // What counts as a stream though the host does it (`host_work`); it begins when it is first asked for.
  size_t stream_of(Doer doer, size_t device);
  Doer doer_of(size_t stream) const { return streams_[stream].doer; }
  std::string stream_name(size_t stream) const;

  // Starts operation number `return value` of a stream: orders it after the host's past and moves the late copies that
  // happen before it.
  uint64_t issue(size_t stream);
  // Spends the launch on the host and the duration on the stream.
  Span run_kernel(size_t stream, const char* op, OpClass op_class, Nanoseconds duration, int64_t bytes);
  Span run_copy(size_t stream, const char* op, Direction direction, size_t bytes);
  // Over the link between the stream's device and the target, or, where there is none, over the links of both to the
  // host, one after the other.
  Span run_peer_copy(size_t stream, const char* op, size_t target, size_t bytes);

  // Spends the duration on a worker of the host, and nothing on the thread that launches.
  Span run_host_task(size_t worker, const char* op, Nanoseconds duration);

  // A collective: each member issues its part, the last one finishes all of them (`collectives`).
  Nanoseconds issue_comm(size_t stream, uint64_t tick, const char* op);
  // Whether a part of this stream that is not finished comes before this one: then it is not known yet what happened
  // before it on other devices.
  bool is_open(size_t stream, uint64_t tick) const {
    const auto& waiting = streams_[stream].comms;
    return !waiting.empty() && waiting.front().tick < tick;
  }
  // The members' parts in the order of the streams, which from now on are done.
  std::vector<PendingComm> finish_comm(const std::vector<size_t>& streams, const char* op, Span span, int64_t bytes);
  // Moves the late bytes of these parts that something was ordered after before they were there.
  void settle_overtaken(const std::vector<size_t>& streams, const std::vector<PendingComm>& parts);
  // Sleeps until the parts that happened before a stream's next operation are finished, or all streams' of a device.
  // The lock must not be held.
  void await_comms(size_t stream);
  void await_comms_of(size_t device);
  std::function<void(size_t device)> comm_waiter;  // `set_comm_waiter`; set while no thread waits.

  Point record(size_t stream);        // An event: not before the thread's host issued it; a worker records by itself.
  Point moment(size_t stream) const;  // The same by the device's host, without what happened before.
  Point tail(size_t stream);          // The end of what the stream holds.
  void wait(size_t stream, const Point& point);
  // These concern the host of the current device.
  // The host's clock jumps there, and knows what happened before.
  void host_wait(const Point& point, HostWait what = kForOperator);
  bool host_query(const Point& point);  // True if the host's clock is there; a false answer costs the host a poll.
  void host_wait_all();                 // For all streams of its device, which a worker of the host is none of.
  bool reached(const Point& point) const { return time_of(point) <= host_now(); }
  // The driver waits for the device, as for page-locking, which takes no time here. Counted, since the process began,
  // inside the allocator's callback: there every thread waits that asks for memory.
  void note_wait();
  uint64_t waits_in_callback() const { return waits_in_callback_; }
  void host_jump(const Point& point);  // Time passes on the host, which learns nothing.
  void host_spend(Nanoseconds duration);
  Nanoseconds time_of(const Point& point) const { return point.generation == generation_ ? point.time : 0; }
  // The thread goes on with the host of the current device.
  void arrive() { turn_to(current_device()); }

  // What launching on the current device has cost since the last reading, on the stream that was current then.
  LaunchReading read_launches();

  Nanoseconds host_now() const { return host_now(current_device()); }
  Nanoseconds host_now(size_t device) const { return hosts_[device].now; }
  Nanoseconds stream_now(size_t stream) const { return streams_[stream].free_at; }
  uint64_t launched(size_t device) const { return hosts_[device].launched; }  // Kernels since the process began.
  uint64_t issued(size_t stream) const { return streams_[stream].issued; }
  // What happens before the next operation of a stream.
  VectorClock past(size_t stream) const;
  // What happened before its latest one.
  const VectorClock& issue_past(size_t stream) const { return streams_[stream].past; }
  const VectorClock& host_past(size_t device) const { return hosts_[device].past; }

  Access access(size_t stream, const char* op, bool write, size_t begin, size_t end) const;
  Counters& counters() { return counters(current_device()); }
  Counters& counters(size_t device) { return hosts_[device].counters; }
  // By device, in the order of issue.
  std::vector<TraceRecord> sorted_trace() const;

  std::recursive_mutex lock;
  LateCopies copies;
  RaceLog races;
  LinkCalendar calendar;
  bool tracing = false;

 private:
  struct StreamState {
    size_t device = 0;
    Doer doer = Doer::kStream;
    c10::StreamId id = 0;
    Nanoseconds free_at = 0;
    uint64_t issued = 0;
    VectorClock past;
    std::deque<PendingComm> comms;
  };
  struct Host {
    Nanoseconds now = 0;
    VectorClock past;
    Counters counters;
    uint64_t launched = 0;
    uint64_t noted = 0;
    LaunchMeter meter;
    size_t metered = 0;  // The stream that the meter follows.
    size_t streams = 0;  // How many the device has.
    size_t next_of_pool = 0;
  };
  Machine();
  size_t add_stream(size_t device, size_t place, Doer doer = Doer::kStream);
  Host& turn_to(size_t device);
  Span transfer(size_t stream, const char* op, const char* kind, std::initializer_list<const LinkModel*> hops,
                size_t bytes);
  void note(size_t stream, const char* op, const char* kind, Span span, int64_t bytes);
  void meter(size_t stream, Span span, bool is_to_host = false);
  void learn(Host& host, const Point& point);  // The host now knows what happened before.
  bool has_comms_before(const VectorClock& past) const;

  std::vector<DeviceModel> models_{1};
  std::vector<StreamState> streams_;  // Room for all from the begin: they never move.
  std::array<Host, kMostDevices> hosts_;
  std::array<size_t, kMostDevices> defaults_{};
  std::vector<uint16_t> numbers_;  // Of streams, by device and place; one more than the number.
  std::vector<TraceRecord> trace_;
  uint64_t generation_ = 1;
  size_t pending_comms_ = 0;
  std::condition_variable_any comm_finished_;
  uint64_t waits_in_callback_ = 0;
};

// Text that lives as long as the process.
const char* intern(const std::string& text);
// The thread's name for what it is doing; part of races and traces.
const char* exchange_label(const char* label);

}  // namespace sim

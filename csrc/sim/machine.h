// The modelled machine: its streams, its links, its host, and the order that the program gives them.
#pragma once
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "sim/clock.h"
#include "sim/copies.h"
#include "sim/cost.h"
#include "sim/launch_meter.h"
#include "sim/races.h"

namespace sim {

constexpr auto kSim = c10::DeviceType::PrivateUse1;
inline c10::Device sim_device() { return {kSim, 0}; }
// Throws unless the index is that of the one device, or says "the current one".
void check_index(c10::DeviceIndex index);

struct TraceRecord {
  size_t stream;
  const char* op;
  const char* label;
  const char* kind;  // An operator class, "to device" or "to host".
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
};

// One process-wide machine. Every method takes the lock itself; it is recursive, so that a caller may hold it over
// several.
class Machine {
 public:
  static Machine& get();

  void configure(const DeviceModel& model);
  const DeviceModel& model() const { return model_; }
  // Waits for everything, then sets all clocks, counters, races and traces to zero. Streams and blocks stay.
  void reset();

  // Streams. The current one belongs to the thread.
  static size_t current_stream();
  static size_t exchange_stream(size_t stream);
  size_t new_stream();
  void check_stream(size_t stream) const;

  // Starts operation number `return value` of a stream: orders it after the host's past and moves the late copies that
  // happen before it.
  uint64_t issue(size_t stream);
  // Spends the launch on the host and the duration on the stream.
  Span run_kernel(size_t stream, const char* op, OpClass op_class, Nanoseconds duration, int64_t bytes);
  Span run_copy(size_t stream, const char* op, Direction direction, size_t bytes);

  Point record(size_t stream);        // An event: not before the host issued it.
  Point moment(size_t stream) const;  // The same without what happened before.
  Point tail(size_t stream);          // The end of what the stream holds.
  void wait(size_t stream, const Point& point);
  void host_wait(const Point& point);   // The host's clock jumps there, and knows what happened before.
  bool host_query(const Point& point);  // True if the host's clock is there; a false answer costs the host a poll.
  void host_wait_all();
  // The driver waits for the device, as for page-locking, which takes no time here. Counted, since the process began,
  // inside the allocator's callback: there every thread waits that asks for memory.
  void note_wait();
  uint64_t waits_in_callback() const { return waits_in_callback_; }
  bool reached(const Point& point) const { return time_of(point) <= host_now_; }
  void host_jump(const Point& point);  // Time passes on the host, which learns nothing.
  Nanoseconds time_of(const Point& point) const { return point.generation == generation_ ? point.time : 0; }

  void host_spend(Nanoseconds duration);

  // What launching has cost since the last reading, on the stream that was current then.
  LaunchReading read_launches();

  Nanoseconds host_now() const { return host_now_; }
  Nanoseconds stream_now(size_t stream) const { return streams_.at(stream).free_at; }
  uint64_t launched() const { return launched_; }  // Kernels since the process began.
  uint64_t issued(size_t stream) const { return streams_.at(stream).issued; }
  // What happens before the next operation of a stream.
  VectorClock past(size_t stream) const;
  // What happened before its latest one.
  const VectorClock& issue_past(size_t stream) const { return streams_[stream].past; }
  const VectorClock& host_past() const { return host_past_; }

  Access access(size_t stream, const char* op, bool write, size_t begin, size_t end) const;

  std::recursive_mutex lock;
  LateCopies copies;
  RaceLog races;
  Counters counters;
  std::vector<TraceRecord> trace;
  bool tracing = false;

 private:
  struct StreamState {
    Nanoseconds free_at = 0;
    uint64_t issued = 0;
    VectorClock past;
  };
  void note(size_t stream, const char* op, const char* kind, Span span, int64_t bytes);
  void meter(size_t stream, Span span);
  void learn(const Point& point);  // The host now knows what happened before.

  DeviceModel model_;
  std::vector<StreamState> streams_{1};
  size_t next_stream_ = 0;
  std::array<Nanoseconds, 2> link_free_at_{};
  Nanoseconds host_now_ = 0;
  VectorClock host_past_;
  uint64_t generation_ = 1;
  uint64_t launched_ = 0;
  uint64_t waits_in_callback_ = 0;
  LaunchMeter meter_;
  size_t metered_ = 0;  // The stream that the meter follows.
};

// Text that lives as long as the process.
const char* intern(const std::string& text);
// The thread's name for what it is doing; part of races and traces.
const char* exchange_label(const char* label);

}  // namespace sim

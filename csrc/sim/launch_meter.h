// What launching costs: how the work since the last reading moves the clocks of its stream and of the host.
#pragma once
#include <algorithm>
#include <limits>
#include <utility>

#include "sim/clock.h"

namespace sim {

// What the host has waited for, as bits: the end of an operator's own, of what the stream holds, of all streams.
enum HostWait : int64_t { kForOperator = 1, kForStream = 2, kForDevice = 4 };

// The end of the work, if only the device or only the host holds it up. A clock that nothing has moved is far behind.
struct LaunchReading {
  Nanoseconds device;  // The device's own time: the host is far ahead.
  Nanoseconds launch;  // The host's own time: the device is idle.
  Nanoseconds end;     // From the host's begin to the end of the work, the device being idle; 0 without work.
  int64_t host_waits;  // Bits of `HostWait`.
  Nanoseconds read;    // What copies to the host took that it waited for.
  Nanoseconds sent;    // What others took, that nobody has waited for.
  Nanoseconds beside;  // What ran on other streams took.
  int64_t stream;      // The stream that all but `beside` is of.
};

class LaunchMeter {
 public:
  void kernel(Nanoseconds launch, Nanoseconds duration, bool is_to_host) {
    spend(launch);
    if (is_to_host) copied_ += duration;
    for (Clocks* clocks : {&from_device_, &from_host_})
      clocks->device = std::max(clocks->device, clocks->host) + duration;
  }
  void spend(Nanoseconds duration) {
    from_device_.host += duration;
    from_host_.host += duration;
  }
  void other(Nanoseconds launch, Nanoseconds duration) {
    spend(launch);
    beside_ += duration;
  }
  void wait(HostWait what) {
    waited_ |= what;
    read_ += std::exchange(copied_, 0);
    for (Clocks* clocks : {&from_device_, &from_host_}) clocks->host = std::max(clocks->host, clocks->device);
  }

  // Starts anew.
  LaunchReading read() {
    const LaunchReading reading{from_device_.device,
                                from_host_.host,
                                std::max<Nanoseconds>(0, from_host_.device),
                                waited_,
                                read_,
                                copied_,
                                beside_,
                                0};
    *this = LaunchMeter();
    return reading;
  }

 private:
  static constexpr Nanoseconds kFarBehind = std::numeric_limits<Nanoseconds>::min() / 2;
  struct Clocks {
    Nanoseconds device;
    Nanoseconds host;
  };

  Clocks from_device_{0, kFarBehind};
  Clocks from_host_{kFarBehind, 0};
  int64_t waited_ = 0;
  Nanoseconds copied_ = 0, read_ = 0, beside_ = 0;
};

}  // namespace sim

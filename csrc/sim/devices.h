// Which devices sim there are, and which of them a thread works on.
#pragma once
#include <c10/core/Device.h>

#include <cstddef>

namespace sim {

constexpr auto kSim = c10::DeviceType::PrivateUse1;
constexpr size_t kMostDevices = 64;

size_t device_count();
void set_device_count(size_t count);  // Of [1, kMostDevices].

// The thread's device; the first one until it is set, and where the one that was set is there no more.
size_t current_device();
size_t exchange_device(size_t device);  // Returns the one before.

inline c10::Device sim_device(size_t device) { return {kSim, static_cast<c10::DeviceIndex>(device)}; }
inline c10::Device sim_device() { return sim_device(current_device()); }

// Throws unless the index is that of a device, or says "the current one".
void check_index(c10::DeviceIndex index);
// The device that an index means, the current one where it is negative; throws as `check_index`.
size_t device_at(c10::DeviceIndex index);

// While it lives, the thread works on that device.
class OnDevice {
 public:
  explicit OnDevice(size_t device) : before_(exchange_device(device)) {}
  explicit OnDevice(c10::Device device) : OnDevice(device_at(device.index())) {}
  ~OnDevice() { exchange_device(before_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  size_t before_;
};

}  // namespace sim

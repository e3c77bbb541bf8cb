#include "sim/devices.h"

#include <c10/util/Exception.h>

#include <atomic>
#include <utility>

namespace sim {
namespace {

std::atomic<size_t> count{1};
thread_local size_t tls_device = 0;

}  // namespace

size_t device_count() { return count.load(std::memory_order_relaxed); }

void set_device_count(size_t wanted) { count = wanted; }

size_t current_device() { return tls_device < device_count() ? tls_device : 0; }

size_t exchange_device(size_t device) { return std::exchange(tls_device, device); }

void check_index(c10::DeviceIndex index) {
  const size_t there = device_count();
  if (index < 0 || static_cast<size_t>(index) < there) return;
  TORCH_CHECK(there > 1, "there is one device sim, not sim:", static_cast<int>(index), ": use sim:0");
  TORCH_CHECK(false, "there are ", there, " devices sim, not sim:", static_cast<int>(index),
              ": use sim:0 to sim:", there - 1);
}

size_t device_at(c10::DeviceIndex index) {
  check_index(index);
  return index < 0 ? current_device() : static_cast<size_t>(index);
}

}  // namespace sim

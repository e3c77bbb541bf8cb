#include "sim/pressure.h"

#include <array>
#include <atomic>

#include "sim/alias.h"

namespace sim {
namespace {

// By device.
std::array<std::atomic<PressureHandler>, kMostDevices> handlers{};
std::array<std::atomic<ReliefCallback>, kMostDevices> callbacks{};
thread_local bool tls_relieving = false;
thread_local bool tls_in_callback = false;

struct Relieving {
  Relieving() { tls_relieving = true; }
  ~Relieving() { tls_relieving = false; }
};

struct InCallback {
  InCallback() { tls_in_callback = true; }
  ~InCallback() { tls_in_callback = false; }
};

}  // namespace

void set_pressure_handler(size_t device, PressureHandler handler) { handlers[device] = handler; }

bool relieve_pressure(size_t bytes, size_t missing, unsigned attempt) {
  const PressureHandler handler = handlers[current_device()];
  if (!handler || tls_relieving) return false;
  Relieving relieving;
  OutsideKernel host;  // What the handler allocates for itself is the host's, also in the middle of a kernel.
  return handler(bytes, missing, attempt);
}

void set_relief_callback(size_t device, ReliefCallback callback) { callbacks[device] = callback; }

bool ask_relief() {
  const ReliefCallback callback = callbacks[current_device()];
  if (!callback || tls_relieving) return false;
  Relieving relieving;
  InCallback inside;
  OutsideKernel host;
  return callback();
}

bool is_asking_relief() { return tls_in_callback; }

}  // namespace sim

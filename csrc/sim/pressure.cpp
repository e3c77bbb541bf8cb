#include "sim/pressure.h"

#include <atomic>

#include "sim/alias.h"

namespace sim {
namespace {

std::atomic<PressureHandler> current_handler{nullptr};
std::atomic<ReliefCallback> current_callback{nullptr};
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

void set_pressure_handler(PressureHandler handler) { current_handler = handler; }

bool relieve_pressure(size_t bytes, size_t missing, unsigned attempt) {
  const PressureHandler handler = current_handler;
  if (!handler || tls_relieving) return false;
  Relieving relieving;
  OutsideKernel host;  // What the handler allocates for itself is the host's, also in the middle of a kernel.
  return handler(bytes, missing, attempt);
}

void set_relief_callback(ReliefCallback callback) { current_callback = callback; }

bool ask_relief() {
  const ReliefCallback callback = current_callback;
  if (!callback || tls_relieving) return false;
  Relieving relieving;
  InCallback inside;
  OutsideKernel host;
  return callback();
}

bool is_asking_relief() { return tls_in_callback; }

}  // namespace sim

#include "sim/autograd.h"

#include <ATen/SequenceNumber.h>
#include <torch/csrc/autograd/engine.h>

#include <atomic>

namespace sim {
namespace {

// The engine's protected members, which the release that this library is built for has.
struct OpenEngine : torch::autograd::Engine {
  static bool has_device_threads(Engine& engine) { return !(engine.*(&OpenEngine::device_ready_queues_)).empty(); }
  static void start_device_threads_of(Engine& engine) { (engine.*(&OpenEngine::start_device_threads))(); }
};

}  // namespace

void serve_registered_devices() {
  auto& engine = torch::autograd::Engine::get_default_engine();
  engine.initialize_device_threads_pool();
  if (!OpenEngine::has_device_threads(engine)) OpenEngine::start_device_threads_of(engine);
}

void follow_sequence() {
  static std::atomic<uint64_t> latest{0};
  uint64_t own = at::sequence_number::peek(), known = latest.load(std::memory_order_relaxed);
  while (own > known && !latest.compare_exchange_weak(known, own, std::memory_order_relaxed)) {
  }
  for (; own < known; ++own) at::sequence_number::get_and_increment();
}

}  // namespace sim

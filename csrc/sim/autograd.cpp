#include "sim/autograd.h"

#include <ATen/SequenceNumber.h>
#include <torch/csrc/autograd/engine.h>

#include <atomic>
#include <memory>
#include <thread>

namespace sim {
namespace {

// The engine's protected members, which the release that this library is built for has.
struct OpenEngine : torch::autograd::Engine {
  static auto& queues_of(Engine& engine) { return engine.*(&OpenEngine::device_ready_queues_); }
  static void start_device_threads_of(Engine& engine) { (engine.*(&OpenEngine::start_device_threads))(); }
};

}  // namespace

void serve_devices(size_t count) {
  auto& engine = torch::autograd::Engine::get_default_engine();
  engine.initialize_device_threads_pool();
  auto& queues = OpenEngine::queues_of(engine);
  if (queues.empty()) OpenEngine::start_device_threads_of(engine);
  while (queues.size() < count) {
    const int device = static_cast<int>(queues.size());
    queues.push_back(std::make_shared<torch::autograd::ReadyQueue>());
    // As the engine starts its own; it counts the thread when it begins, before it takes any work.
    std::thread([&engine, device, queue = queues.back()] { engine.thread_init(device, queue, true); }).detach();
  }
}

void follow_sequence() {
  static std::atomic<uint64_t> latest{0};
  uint64_t own = at::sequence_number::peek(), known = latest.load(std::memory_order_relaxed);
  while (own > known && !latest.compare_exchange_weak(known, own, std::memory_order_relaxed)) {
  }
  for (; own < known; ++own) at::sequence_number::get_and_increment();
}

}  // namespace sim

#include "storage/waits.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/DeviceGuard.h>

#include <atomic>

namespace bayplan::swap {
namespace {

thread_local int without_waits = 0;
std::atomic<uint64_t> under_lock{0}, with_store{0};

}  // namespace

thread_local int StoreMutex::held_ = 0;

WithoutWaits::WithoutWaits() { ++without_waits; }
WithoutWaits::~WithoutWaits() { --without_waits; }
bool WithoutWaits::active() { return without_waits > 0; }

void note_wait(Awaited what) {
  if (WithoutWaits::active()) ++under_lock;
  if (what == Awaited::kThreads && StoreMutex::held()) ++with_store;
}

ForbiddenWaits forbidden_waits() { return {under_lock.load(), with_store.load()}; }

void await(c10::Event& event) {
  note_wait(Awaited::kDevice);
  event.synchronize();
}

void empty_cache(c10::Device device) {
  note_wait(Awaited::kDevice);
  const c10::OptionalDeviceGuard on(device);  // CUDA empties all devices' caches, others the current one's
  c10::getDeviceAllocator(device.type())->emptyCache();
}

}  // namespace bayplan::swap

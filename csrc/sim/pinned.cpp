#include "sim/pinned.h"

#include <c10/util/Exception.h>

#include <cstdlib>
#include <cstring>

namespace sim {
namespace {

constexpr size_t kPage = 4096;

void delete_pinned(void* address) {
  if (address) PinnedAllocator::get().free(static_cast<char*>(address));
}

}  // namespace

PinnedAllocator& PinnedAllocator::get() {
  static auto* allocator = new PinnedAllocator();  // Never destroyed: tensors may outlive static destructors.
  return *allocator;
}

c10::DeleterFnPtr PinnedAllocator::raw_deleter() const { return &delete_pinned; }
void PinnedAllocator::copy_data(void* to, const void* from, size_t bytes) const { std::memcpy(to, from, bytes); }

c10::DataPtr PinnedAllocator::allocate(size_t bytes) {
  if (bytes == 0) return {nullptr, nullptr, &delete_pinned, c10::Device(c10::kCPU)};
  auto* address = static_cast<char*>(std::aligned_alloc(kPage, (bytes + kPage - 1) / kPage * kPage));
  TORCH_CHECK(address, "cannot allocate ", bytes, " bytes of pinned host memory: the host is out of memory");
  std::lock_guard<std::recursive_mutex> held(Machine::get().lock);
  blocks_.emplace(address, PinnedBlock{bytes, 0, false, {}});
  bytes_.increase(bytes);
  requests_.increase(1);
  return {address, address, &delete_pinned, c10::Device(c10::kCPU)};
}

void PinnedAllocator::erase(std::map<char*, PinnedBlock>::iterator at) {
  bytes_.decrease(at->second.bytes);
  requests_.decrease(1);
  std::free(at->first);
  blocks_.erase(at);
}

void PinnedAllocator::free(char* address) {
  std::lock_guard<std::recursive_mutex> held(Machine::get().lock);
  auto at = blocks_.find(address);
  if (at->second.moving == 0)
    erase(at);
  else
    at->second.freed = true;
}

char* PinnedAllocator::start_of(const void* address) {
  std::lock_guard<std::recursive_mutex> held(Machine::get().lock);
  auto* wanted = static_cast<char*>(const_cast<void*>(address));
  auto at = blocks_.upper_bound(wanted);
  if (at == blocks_.begin()) return nullptr;
  --at;
  return wanted < at->first + at->second.bytes ? at->first : nullptr;
}

bool PinnedAllocator::owns(const void* address) { return start_of(address) != nullptr; }

void PinnedAllocator::hold(char* start) { ++blocks_.at(start).moving; }

void PinnedAllocator::drop(char* start) {
  auto at = blocks_.find(start);
  if (--at->second.moving == 0 && at->second.freed) erase(at);
}

// Copies hold their block by themselves until they have moved.
bool PinnedAllocator::record_event(void* /*address*/, void* /*context*/, c10::Stream /*stream*/) { return true; }

at::HostStats PinnedAllocator::get_stats() {
  std::lock_guard<std::recursive_mutex> held(Machine::get().lock);
  at::HostStats stats;
  stats.active_requests = stats.allocations = requests_;
  stats.active_bytes = stats.allocated_bytes = bytes_;
  return stats;
}

void PinnedAllocator::reset_accumulated_stats() {
  std::lock_guard<std::recursive_mutex> held(Machine::get().lock);
  bytes_.reset_accumulated();
  requests_.reset_accumulated();
}

void PinnedAllocator::reset_peak_stats() {
  std::lock_guard<std::recursive_mutex> held(Machine::get().lock);
  bytes_.reset_peak();
  requests_.reset_peak();
}

}  // namespace sim

#include "sim/pinned.h"

#include <c10/util/Exception.h>
#include <c10/util/llvmMathExtras.h>
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

namespace sim {
namespace {

constexpr size_t kPage = 4096;

size_t whole_pages(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

// Addresses whose pages come into being when they are written: in shapes-only mode never.
char* reserve(size_t bytes) {
  void* at =
      mmap(nullptr, whole_pages(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return at == MAP_FAILED ? nullptr : static_cast<char*>(at);
}

void give_back(char* address, size_t bytes) { munmap(address, whole_pages(bytes)); }

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
  std::lock_guard<std::recursive_mutex> held(Machine::get().lock);
  if (power_of_two_) bytes = c10::llvm::PowerOf2Ceil(bytes);
  char* address = take(bytes);
  blocks_.emplace(address, PinnedBlock{bytes, 0, false, {}});
  requests_.increase(1);
  return {address, address, &delete_pinned, c10::Device(c10::kCPU)};
}

// A block that was kept, or new memory.
char* PinnedAllocator::take(size_t bytes) {
  const auto kept = cached_.find(bytes);
  if (kept != cached_.end()) {
    char* address = kept->second;
    cached_.erase(kept);
    return address;
  }
  Machine::get().note_wait();
  char* address = reserve(bytes);
  TORCH_CHECK(address, "cannot allocate ", bytes, " bytes of pinned host memory: the host is out of memory");
  bytes_.increase(bytes);
  return address;
}

void PinnedAllocator::erase(std::map<char*, PinnedBlock>::iterator at) {
  requests_.decrease(1);
  if (power_of_two_) {
    cached_.emplace(at->second.bytes, at->first);
  } else {
    bytes_.decrease(at->second.bytes);
    give_back(at->first, at->second.bytes);
  }
  blocks_.erase(at);
}

void PinnedAllocator::empty_cache() {
  std::lock_guard<std::recursive_mutex> held(Machine::get().lock);
  for (const auto& [bytes, address] : cached_) {
    bytes_.decrease(bytes);
    give_back(address, bytes);
  }
  cached_.clear();
}

void PinnedAllocator::set_rounding(bool power_of_two) {
  std::lock_guard<std::recursive_mutex> held(Machine::get().lock);
  power_of_two_ = power_of_two;
  empty_cache();
}

void PinnedAllocator::add(char* address, size_t bytes) {
  std::lock_guard<std::recursive_mutex> held(Machine::get().lock);
  Machine::get().note_wait();
  blocks_.emplace(address, PinnedBlock{bytes, 0, false, {}});
  bytes_.increase(bytes);
}

void PinnedAllocator::remove(char* address) {
  std::lock_guard<std::recursive_mutex> held(Machine::get().lock);
  Machine::get().note_wait();
  auto at = blocks_.find(address);
  TORCH_INTERNAL_ASSERT(at != blocks_.end() && at->second.moving == 0, "a copy still uses this page-locked memory");
  bytes_.decrease(at->second.bytes);
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

#include "sim/device_memory.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cstring>

namespace sim {
namespace {

constexpr size_t kGranule = 512;

size_t rounded(size_t bytes) { return (bytes + kGranule - 1) / kGranule * kGranule; }

void delete_block(void* address) {
  if (address) DeviceMemory::get().free(address);
}

}  // namespace

DeviceMemory& DeviceMemory::get() {
  static auto* allocator = new DeviceMemory();  // Never destroyed: tensors may outlive static destructors.
  return *allocator;
}

c10::DeleterFnPtr DeviceMemory::raw_deleter() const { return &delete_block; }
void DeviceMemory::copy_data(void* to, const void* from, size_t bytes) const { std::memcpy(to, from, bytes); }

c10::DataPtr DeviceMemory::allocate(size_t bytes) {
  if (bytes == 0) return {nullptr, nullptr, &delete_block, sim_device()};
  Machine& machine = Machine::get();
  auto block = std::make_unique<Block>(Block{0, rounded(bytes), bytes, Machine::current_stream(), {}, {}});
  size_t allocated = 0, taken = 0;
  void* address = nullptr;
  {
    std::lock_guard<std::recursive_mutex> held(machine.lock);
    release_completed();
    if (!fits(block->bytes)) make_room(block->bytes);
    if (!fits(block->bytes)) refuse(bytes, block->bytes);
    block->offset = addresses_.take(block->bytes, block->stream);
    if (machine.races.on()) {
      const Access allocation = machine.access(block->stream, "allocation", true, 0, block->bytes);
      check_reuse(allocation);
      if (machine.host_past().of(block->stream) < allocation.tick) block->shadow.reset(allocation);
    }
    count(*block, 1);
    allocated = static_cast<size_t>(allocated_.current);
    taken = block->bytes;
    address = addresses_.at(block->offset);
    blocks_[block->offset] = std::move(block);
  }
  c10::reportMemoryUsageToProfiler(address, static_cast<int64_t>(taken), allocated, reserved(), sim_device());
  return {address, address, &delete_block, sim_device()};
}

void DeviceMemory::count(const Block& block, int sign) {
  auto change = [sign](auto& stat, size_t amount) { sign > 0 ? stat.increase(amount) : stat.decrease(amount); };
  change(allocations_, 1);
  change(allocated_, block.bytes);
  change(requested_, block.requested);
  if (sign < 0) return;  // An active block is counted off when its bytes can be used again.
  active_blocks_.increase(1);
  active_.increase(block.bytes);
}

void DeviceMemory::free(void* address) {
  Machine& machine = Machine::get();
  std::unique_lock<std::recursive_mutex> held(machine.lock);
  auto at = blocks_.find(addresses_.offset_of(address));
  if (at == blocks_.end()) return;
  std::unique_ptr<Block> block = std::move(at->second);
  blocks_.erase(at);
  const auto bytes = static_cast<int64_t>(block->bytes);
  count(*block, -1);
  Deferred deferred{std::move(block), {}};
  for (size_t stream : deferred.block->recorded) deferred.uses.push_back(machine.record(stream));
  if (deferred.uses.empty())
    recycle(std::move(deferred.block));
  else
    deferred_.push_back(std::move(deferred));
  const auto allocated = static_cast<size_t>(allocated_.current);
  held.unlock();
  c10::reportMemoryUsageToProfiler(address, -bytes, allocated, reserved(), sim_device());
}

void DeviceMemory::recycle(std::unique_ptr<Block> block) {
  Machine& machine = Machine::get();
  const VectorClock past = machine.past(block->stream);
  if (machine.races.on()) {
    block->shadow.for_each([&](const Access& access) {
      if (access.stream != block->stream && past.of(access.stream) < access.tick)
        suspects_.push_back({block->stream, access, block->bytes});
    });
  }
  active_blocks_.decrease(1);
  active_.decrease(block->bytes);
  addresses_.give_back(block->offset, block->bytes, block->stream);
}

void DeviceMemory::release(Deferred& deferred) {
  Machine& machine = Machine::get();
  std::vector<Access> unrecorded;
  for (const Point& use : deferred.uses) machine.copies.settle(use.past);
  deferred.block->shadow.for_each([&](const Access& access) {
    for (const Point& use : deferred.uses)
      if (use.past.of(access.stream) >= access.tick) return;
    unrecorded.push_back(access);
  });
  deferred.block->shadow.reset();
  std::vector<Access> none;
  for (const Access& access : unrecorded) deferred.block->shadow.enter(access, {}, none);
  recycle(std::move(deferred.block));
}

bool DeviceMemory::release_completed() {
  Machine& machine = Machine::get();
  bool any = false;
  auto done = [&](const Deferred& d) {
    return std::all_of(d.uses.begin(), d.uses.end(), [&](const Point& use) { return machine.reached(use); });
  };
  for (auto at = deferred_.begin(); at != deferred_.end();) {
    if (!done(*at)) {
      ++at;
      continue;
    }
    release(*at);
    at = deferred_.erase(at);
    any = true;
  }
  return any;
}

bool DeviceMemory::release_next() {
  Machine& machine = Machine::get();
  auto end_of = [&](const Deferred& d) {
    Nanoseconds last = 0;
    for (const Point& use : d.uses) last = std::max(last, machine.time_of(use));
    return last;
  };
  auto next = std::min_element(deferred_.begin(), deferred_.end(),
                               [&](const Deferred& a, const Deferred& b) { return end_of(a) < end_of(b); });
  if (next == deferred_.end()) return false;
  for (const Point& use : next->uses) machine.host_jump(use);
  return release_completed();
}

void DeviceMemory::make_room(size_t bytes) {
  if (deferred_.empty()) return;
  ++retries_;
  while (!fits(bytes) && release_next()) {
  }
}

void DeviceMemory::refuse(size_t requested, size_t rounded_bytes) {
  ++ooms_;
  const size_t used = in_use();
  c10::reportOutOfMemoryToProfiler(static_cast<int64_t>(requested), static_cast<size_t>(allocated_.current), used,
                                   sim_device());
  TORCH_CHECK_WITH(OutOfMemoryError, false, "sim out of memory: an allocation of ", requested, " bytes (",
                   rounded_bytes, " rounded up) does not fit, ", used, " of ", capacity_, " bytes are in use and ",
                   used > capacity_ ? 0 : capacity_ - used,
                   " are free: raise capacity_bytes, lower the batch size, or swap or recompute tensors");
}

// In this allocator any bytes may become any block, so that the streams which may still use a freed block of the
// allocating stream race with its next allocation, wherever that lands.
void DeviceMemory::check_reuse(const Access& allocation) {
  if (suspects_.empty()) return;
  Machine& machine = Machine::get();
  const VectorClock past = machine.past(allocation.stream);
  auto settled = [&](const Suspect& suspect) {
    if (suspect.owner != allocation.stream) return false;
    if (past.of(suspect.access.stream) < suspect.access.tick)
      machine.races.add(suspect.access, allocation, "freed device", suspect.block_bytes);
    return true;
  };
  suspects_.erase(std::remove_if(suspects_.begin(), suspects_.end(), settled), suspects_.end());
}

Block* DeviceMemory::find(const void* address) {
  if (!owns(address)) return nullptr;
  auto at = blocks_.find(addresses_.offset_of(address));
  return at == blocks_.end() ? nullptr : at->second.get();
}

void DeviceMemory::recordStream(const c10::DataPtr& data, c10::Stream stream) {
  Machine& machine = Machine::get();
  const auto user = static_cast<size_t>(stream.id());
  machine.check_stream(user);
  std::lock_guard<std::recursive_mutex> held(machine.lock);
  Block* block = find(data.get());
  if (!block || block->stream == user) return;
  if (std::find(block->recorded.begin(), block->recorded.end(), user) == block->recorded.end())
    block->recorded.push_back(user);
}

void DeviceMemory::emptyCache(c10::MempoolId_t /*pool*/) {
  Machine& machine = Machine::get();
  std::lock_guard<std::recursive_mutex> held(machine.lock);
  machine.host_wait_all();
  release_completed();
  suspects_.clear();
  addresses_.settle_all();
}

c10::CachingDeviceAllocator::DeviceStats DeviceMemory::getDeviceStats(c10::DeviceIndex /*device*/) {
  std::lock_guard<std::recursive_mutex> held(Machine::get().lock);
  c10::CachingDeviceAllocator::DeviceStats stats;
  stats.allocation[0] = allocations_;
  stats.allocated_bytes[0] = allocated_;
  stats.requested_bytes[0] = requested_;
  stats.active[0] = active_blocks_;
  stats.active_bytes[0] = active_;
  stats.reserved_bytes[0] = active_;  // Nothing is cached: reserved is what cannot be given to anyone else.
  stats.num_ooms = ooms_;
  stats.num_alloc_retries = retries_;
  return stats;
}

void DeviceMemory::resetAccumulatedStats(c10::DeviceIndex /*device*/) {
  std::lock_guard<std::recursive_mutex> held(Machine::get().lock);
  for (auto* stat : {&allocations_, &allocated_, &requested_, &active_blocks_, &active_}) stat->reset_accumulated();
  ooms_ = retries_ = 0;
}

void DeviceMemory::resetPeakStats(c10::DeviceIndex /*device*/) {
  std::lock_guard<std::recursive_mutex> held(Machine::get().lock);
  for (auto* stat : {&allocations_, &allocated_, &requested_, &active_blocks_, &active_}) stat->reset_peak();
}

std::pair<size_t, size_t> DeviceMemory::getMemoryInfo(c10::DeviceIndex /*device*/) {
  std::lock_guard<std::recursive_mutex> held(Machine::get().lock);
  return {in_use() > capacity_ ? 0 : capacity_ - in_use(), capacity_};
}

void DeviceMemory::set_capacity(size_t bytes) {
  std::lock_guard<std::recursive_mutex> held(Machine::get().lock);
  release_completed();
  TORCH_CHECK(in_use() <= bytes, "capacity_bytes of ", bytes, " is below the ", in_use(),
              " bytes in use on device sim: free tensors first or ask for more");
  capacity_ = bytes;
}

void DeviceMemory::reset() {
  std::lock_guard<std::recursive_mutex> held(Machine::get().lock);
  release_completed();
  suspects_.clear();
  resetAccumulatedStats(0);
  resetPeakStats(0);
}

}  // namespace sim

// Mode caching of the device's memory: what a request tries, in the order of PyTorch's allocator for CUDA.
#include <c10/util/Exception.h>

#include "sim/device_memory.h"
#include "sim/pressure.h"

namespace sim {

void DeviceMemory::set_rules(std::optional<SegmentRules> rules) {
  const OnDevice on(device_);
  Machine& machine = Machine::get();
  std::lock_guard<std::recursive_mutex> held(machine.lock);
  if (!rules && !caching_) return;
  machine.host_wait_all();
  release_completed();
  frees_.clear();
  segments_.set_rules({});  // Giving back costs nothing here.
  segments_.release_free();
  addresses_.settle_all();
  size_t outside = 0;
  for (const auto& [offset, block] : blocks_) outside += block->chunk ? 0 : block->bytes;
  if (rules && !caching_) segments_.adopt(outside);
  if (!rules && caching_) segments_.disown(outside);
  caching_ = rules.has_value();
  segments_.set_limit(std::nullopt);
  segments_.set_rules(rules.value_or(SegmentRules{}));
}

// DeviceCachingAllocator::malloc
void DeviceMemory::take_chunk(Block& block) {
  const SegmentRequest request = Segments::request(block.requested, block.stream);
  Chunk* chunk = segments_.find(request);
  if (!chunk && ask_callback(block)) chunk = segments_.find(request);
  if (!chunk) chunk = segments_.grow(request);
  if (!chunk) chunk = segments_.stitch(request);
  if (!chunk && segments_.release_oversize(request)) chunk = segments_.grow(request);
  if (!chunk) {
    ++retries_;
    release_cached();
    chunk = segments_.grow(request);
  }
  if (!chunk) refuse(request);
  segments_.use(*chunk, request);
  block.chunk = chunk;
  block.offset = chunk->offset;
  block.bytes = chunk->bytes;
}

// Asked once, under the lock, and before it is known whether the device is full, as CUDA's callbacks are.
bool DeviceMemory::ask_callback(const Block& block) {
  Machine& machine = Machine::get();
  const bool freed = ask_relief();
  // If a kernel is under way, it now comes after what its stream was made to wait for.
  machine.copies.settle(machine.past(block.stream));
  return freed;
}

// release_cached_blocks
void DeviceMemory::release_cached() {
  segments_.count_synchronization();
  for (const Deferred& deferred : deferred_)
    for (const Use& use : deferred.uses) Machine::get().host_wait(use.end);
  release_completed();
  segments_.release_free();
}

void DeviceMemory::refuse(const SegmentRequest& request) {
  ++ooms_;
  const size_t reserved = segments_.reserved(), allocated = static_cast<size_t>(allocated_.current);
  const size_t free = capacity_ > reserved ? capacity_ - reserved : 0;
  segments_.note("oom", free, request.bytes, request.stream);
  c10::reportOutOfMemoryToProfiler(static_cast<int64_t>(request.bytes), allocated, reserved, sim_device());
  const std::string allowed =
      segments_.limit() ? c10::str(" ", *segments_.limit(), " bytes are allowed to be reserved.") : std::string();
  TORCH_CHECK_WITH(OutOfMemoryError, false, "sim out of memory: tried to allocate ", request.segment_bytes,
                   " bytes for a request of ", request.requested, " bytes. The device has a total capacity of ",
                   capacity_, " bytes of which ", free, " bytes are free.", allowed, " Of the allocated memory ",
                   allocated, " bytes are allocated by PyTorch, and ", reserved > allocated ? reserved - allocated : 0,
                   " bytes are reserved by PyTorch but unallocated: raise capacity_bytes or the limit, lower the "
                   "batch size, or swap or recompute tensors; where much is unallocated, try expandable_segments=True");
}

// Requests, blocks and bytes of both pools together are counted in either mode; the rest the segments know.
void DeviceMemory::fill_pools(c10::CachingDeviceAllocator::DeviceStats& stats) const {
  const c10::CachingDeviceAllocator::DeviceStats& pools = segments_.stats();
  for (const size_t kind : {1, 2}) {
    stats.allocation[kind] = pools.allocation[kind];
    stats.allocated_bytes[kind] = pools.allocated_bytes[kind];
    stats.requested_bytes[kind] = pools.requested_bytes[kind];
    stats.active[kind] = pools.active[kind];
    stats.active_bytes[kind] = pools.active_bytes[kind];
  }
  stats.segment = pools.segment;
  stats.reserved_bytes = pools.reserved_bytes;
  stats.inactive_split = pools.inactive_split;
  stats.inactive_split_bytes = pools.inactive_split_bytes;
  stats.oversize_allocations = pools.oversize_allocations;
  stats.oversize_segments = pools.oversize_segments;
  stats.num_sync_all_streams = pools.num_sync_all_streams;
  stats.num_device_alloc = pools.num_device_alloc;
  stats.num_device_free = pools.num_device_free;
  const size_t most = segments_.rules().max_split;
  stats.max_split_size = most == SegmentRules::kUnlimited ? -1 : static_cast<int64_t>(most);
}

}  // namespace sim

// One file: all that a request for memory and a free must do together under the machine's lock.
#include "sim/device_memory.h"
#include "sim/known.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <utility>

#include "sim/copy_on_write.h"
#include "sim/pressure.h"

namespace sim {
namespace {

constexpr size_t kGranule = 512;

size_t rounded(size_t bytes) { return (bytes + kGranule - 1) / kGranule * kGranule; }

constexpr size_t kMostReserved = size_t{1} << 42;  // 4 TiB of addresses for the first device, 1 TiB for each other.

// Never destroyed: tensors may outlive static destructors.
std::array<std::atomic<DeviceMemory*>, kMostDevices> memories{};

void delete_block(void* address) {
  if (DeviceMemory* memory = address ? DeviceMemory::of(address) : nullptr) memory->free(address);
}

class Front final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override { return DeviceMemory::get().allocate(bytes); }
  c10::DeleterFnPtr raw_deleter() const override { return &delete_block; }
  void copy_data(void* to, const void* from, size_t bytes) const override { copy_shared_bytes(to, from, bytes); }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t pool) override { DeviceMemory::get().emptyCache(pool); }
  void recordStream(const c10::DataPtr& data, c10::Stream stream) override {
    DeviceMemory::get().recordStream(data, stream);
  }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    return named(device).getDeviceStats(device);
  }
  void resetAccumulatedStats(c10::DeviceIndex device) override { named(device).resetAccumulatedStats(device); }
  void resetPeakStats(c10::DeviceIndex device) override { named(device).resetPeakStats(device); }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    return named(device).getMemoryInfo(device);
  }

 private:
  static DeviceMemory& named(c10::DeviceIndex device) { return DeviceMemory::at(device_at(device)); }
};

}  // namespace

DeviceMemory::DeviceMemory(size_t device)
    : device_(device), addresses_(device == 0 ? kMostReserved : kMostReserved / 4) {}

DeviceMemory& DeviceMemory::at(size_t device) { return *memories[device]; }

DeviceMemory* DeviceMemory::of(const void* address) {
  for (const auto& one : memories) {
    DeviceMemory* memory = one.load(std::memory_order_acquire);
    if (!memory) return nullptr;  // There are none after it.
    if (memory->addresses_.owns(address)) return memory;
  }
  return nullptr;
}

void DeviceMemory::make(size_t count) {
  std::lock_guard<std::recursive_mutex> held(Machine::get().lock);
  for (size_t device = 0; device < count; ++device)
    if (!memories[device]) memories[device].store(new DeviceMemory(device), std::memory_order_release);
}

c10::DeviceAllocator* DeviceMemory::front() {
  static auto* front = new Front();
  return front;
}

c10::DeleterFnPtr DeviceMemory::raw_deleter() const { return &delete_block; }
void DeviceMemory::copy_data(void* to, const void* from, size_t bytes) const { copy_shared_bytes(to, from, bytes); }

c10::DataPtr DeviceMemory::allocate(size_t bytes) {
  const OnDevice on(device_);
  if (bytes == 0) return {nullptr, nullptr, &delete_block, sim_device()};
  Machine& machine = Machine::get();
  machine.arrive();
  auto block = std::make_unique<Block>(Block{0, rounded(bytes), bytes, Machine::current_stream(), {}, {}});
  size_t allocated = 0, taken = 0;
  void* address = nullptr;
  {
    Held held(machine.lock);
    release_completed(/*requested=*/true);
    if (caching_) {
      take_chunk(*block);
    } else {
      if (!fits(*block)) reach_room(*block, held);
      take_freed(*block);
      block->offset = addresses_.take(block->bytes, block->stream);
    }
    if (machine.races.on()) {
      judge_frees(block->stream);
      const Access allocation = machine.access(block->stream, "allocation", true, 0, block->bytes);
      if (machine.host_past(device_).of(block->stream) < allocation.tick) block->shadow.reset(allocation);
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
  if (sign > 0 || !block.chunk) change(requested_, block.requested);
  if (sign < 0) return;  // An active block is counted off when its bytes can be used again.
  active_blocks_.increase(1);
  active_.increase(block.bytes);
}

// Any thread may let go of a tensor: its host learns nothing of the device's by that, nor the other way round.
void DeviceMemory::free(void* address) {
  const OnDevice on(device_);
  forget_known(address);
  Machine& machine = Machine::get();
  Held held(machine.lock);
  auto at = blocks_.find(addresses_.offset_of(address));
  if (at == blocks_.end()) return;
  std::unique_ptr<Block> block = std::move(at->second);
  blocks_.erase(at);
  const auto bytes = static_cast<int64_t>(block->bytes);
  count(*block, -1);
  Deferred deferred{std::move(block), {}};
  for (size_t stream : deferred.block->recorded) {
    Point end = machine.moment(stream);
    end.past = machine.past(stream);
    deferred.uses.push_back({stream, std::move(end)});
  }
  note_free(*deferred.block, deferred.uses);
  if (deferred.block->chunk) segments_.request_free(*deferred.block->chunk, !deferred.uses.empty());
  if (deferred.uses.empty())
    recycle(std::move(deferred.block));
  else
    deferred_.push_back(std::move(deferred));
  const auto allocated = static_cast<size_t>(allocated_.current);
  held.unlock();
  c10::reportMemoryUsageToProfiler(address, -bytes, allocated, reserved(), sim_device());
}

void DeviceMemory::note_free(Block& block, const std::vector<Use>& uses) {
  Machine& machine = Machine::get();
  if (!machine.races.on()) return;
  VectorClock excused;
  for (const Use& use : uses) excused.join(use.end.past);
  if (frees_.size() <= block.stream) frees_.resize(block.stream + 1);
  frees_[block.stream].push_back({machine.access(block.stream, "free", true, 0, block.bytes), std::move(block.shadow),
                                  std::move(excused), block.requested});
}

void DeviceMemory::judge_frees(size_t stream) {
  if (stream >= frees_.size()) return;
  Machine& machine = Machine::get();
  for (Free& free : std::exchange(frees_[stream], {})) {
    VectorClock past = machine.past(stream);
    past.join(free.excused);
    machine.races.enter(free.shadow, free.access, past, "device", free.requested);
  }
}

void DeviceMemory::recycle(std::unique_ptr<Block> block) {
  Machine& machine = Machine::get();
  if (block->given != Block::Given::kNot) reuse_intervals_.push_back(machine.launched(device_) - block->given_when);
  forget_given(*block);
  active_blocks_.decrease(1);
  active_.decrease(block->bytes);
  if (block->chunk) {
    requested_.decrease(block->requested);
    segments_.complete_free(*block->chunk);
    return;
  }
  if (caching_) segments_.disown(block->bytes);
  if (freed_.size() <= block->stream) freed_.resize(block->stream + 1);
  freed_[block->stream] = {freed_[block->stream].bytes + block->bytes, machine.issued(block->stream),
                           machine.moment(block->stream)};
  addresses_.give_back(block->offset, block->bytes, block->stream);
  if (!addresses_.has_pages_to_spare()) return;
  // Copies that these streams were told to wait for may still have to read what was freed on them since.
  for (size_t stream = 0; stream < freed_.size(); ++stream) machine.copies.settle(machine.past(stream));
  addresses_.drop_pages();
}

void DeviceMemory::take_freed(const Block& block) {
  if (block.stream >= freed_.size()) return;
  Freed& own = freed_[block.stream];
  own.bytes -= std::min(own.bytes, block.bytes);
}

size_t DeviceMemory::held_by_others(size_t stream) const {
  const Machine& machine = Machine::get();
  size_t bytes = 0;
  for (size_t other = 0; other < freed_.size(); ++other) {
    const Freed& freed = freed_[other];
    if (other == stream || freed.bytes == 0 || machine.reached(freed.point)) continue;
    if (machine.past(stream).of(other) < freed.tick) bytes += freed.bytes;
  }
  return bytes;
}

// Looks at the events of each stream from the oldest on, up to the first that is still to come.
void DeviceMemory::release_completed(bool requested) {
  Machine& machine = Machine::get();
  c10::SmallVector<size_t, 4> busy;
  auto look = [&](Use& use) {
    if (use.over) return true;
    if (std::find(busy.begin(), busy.end(), use.stream) != busy.end()) return false;
    if (requested) {  // As CUDA's allocator does at every request.
      machine.host_spend(machine.model().event_query_ns);
      ++machine.counters().event_queries;
    }
    use.over = machine.reached(use.end);
    if (!use.over) busy.push_back(use.stream);
    return use.over;
  };
  for (auto at = deferred_.begin(); at != deferred_.end();) {
    size_t over = 0;
    for (Use& use : at->uses) over += look(use) ? 1 : 0;
    if (over < at->uses.size()) {
      ++at;
      continue;
    }
    for (const Use& use : at->uses) machine.copies.settle(use.end.past);
    recycle(std::move(at->block));
    at = deferred_.erase(at);
  }
}

namespace {

uint64_t launched_on(const Block& block) {
  const Machine& machine = Machine::get();
  return machine.launched(machine.device_of(block.stream));
}

}  // namespace

void DeviceMemory::give(Block& block, size_t stream) {
  forget_given(block);
  block.given = Block::Given::kHandedOver;
  block.given_to = stream;
  block.given_when = launched_on(block);
  ++handed_over_;
}

void DeviceMemory::note_use(Block& block, size_t stream) {
  if (block.given == Block::Given::kHandedOver && block.given_to != stream) forget_given(block);
}

void DeviceMemory::forget_given(Block& block) {
  if (block.given == Block::Given::kHandedOver) --handed_over_;
  block.given = Block::Given::kNot;
}

std::vector<uint64_t> DeviceMemory::reuse_intervals() const {
  std::lock_guard<std::recursive_mutex> held(Machine::get().lock);
  return reuse_intervals_;
}

bool DeviceMemory::jump_to_next_end(size_t stream) {
  Machine& machine = Machine::get();
  std::vector<Point> ends;
  for (const Deferred& deferred : deferred_)
    ends.push_back(std::max_element(deferred.uses.begin(), deferred.uses.end(), [&](const Use& a, const Use& b) {
                     return machine.time_of(a.end) < machine.time_of(b.end);
                   })->end);
  for (size_t other = 0; other < freed_.size(); ++other)
    if (other != stream && freed_[other].bytes > 0) ends.push_back(freed_[other].point);
  const Point* next = nullptr;
  for (const Point& end : ends)
    if (!machine.reached(end) && (!next || machine.time_of(end) < machine.time_of(*next))) next = &end;
  if (!next) return false;
  machine.host_jump(*next);
  release_completed();
  return true;
}

void DeviceMemory::make_room(const Block& block) {
  if (fits(block) || !jump_to_next_end(block.stream)) return;
  ++retries_;
  while (!fits(block) && jump_to_next_end(block.stream)) {
  }
}

size_t DeviceMemory::missing(const Block& block) const {
  const size_t needed = in_use() + held_by_others(block.stream) + block.bytes;
  return needed > capacity_ ? needed - capacity_ : 0;
}

void DeviceMemory::reach_room(const Block& block, Held& held) {
  Machine& machine = Machine::get();
  for (unsigned attempt = 0; !fits(block); ++attempt) {
    const size_t lacking = missing(block);
    held.unlock();
    const bool relieved = relieve_pressure(block.bytes, lacking, attempt);
    held.lock();
    // If a kernel is under way, it now comes after what its stream was made to wait for.
    machine.copies.settle(machine.past(block.stream));
    release_completed();
    make_room(block);
    if (!relieved && attempt > 0 && !fits(block)) refuse(block);
  }
}

void DeviceMemory::refuse(const Block& block) {
  ++ooms_;
  const size_t used = in_use();
  c10::reportOutOfMemoryToProfiler(static_cast<int64_t>(block.requested), static_cast<size_t>(allocated_.current), used,
                                   sim_device());
  TORCH_CHECK_WITH(OutOfMemoryError, false, "sim out of memory: an allocation of ", block.requested, " bytes (",
                   block.bytes, " rounded up) does not fit, ", used, " of ", capacity_, " bytes are in use and ",
                   used > capacity_ ? 0 : capacity_ - used,
                   " are free: raise capacity_bytes, lower the batch size, or swap or recompute tensors");
}

Block* DeviceMemory::find(const void* address) {
  DeviceMemory* memory = of(address);
  if (!memory) return nullptr;
  std::lock_guard<std::recursive_mutex> held(Machine::get().lock);
  auto at = memory->blocks_.find(memory->addresses_.offset_of(address));
  return at == memory->blocks_.end() ? nullptr : at->second.get();
}

void DeviceMemory::recordStream(const c10::DataPtr& data, c10::Stream stream) {
  Machine& machine = Machine::get();
  const size_t user = machine.number_of(stream.id());
  std::lock_guard<std::recursive_mutex> held(machine.lock);
  Block* block = find(data.get());
  if (!block || block->stream == user) return;
  if (std::find(block->recorded.begin(), block->recorded.end(), user) == block->recorded.end())
    block->recorded.push_back(user);
  if (block->given != Block::Given::kNot) return;
  block->given = Block::Given::kRecorded;
  block->given_when = launched_on(*block);
}

void DeviceMemory::emptyCache(c10::MempoolId_t /*pool*/) {
  const OnDevice on(device_);
  Machine& machine = Machine::get();
  std::lock_guard<std::recursive_mutex> held(machine.lock);
  machine.host_wait_all();
  release_completed();
  frees_.clear();
  if (caching_)
    release_cached();
  else
    segments_.release_free();  // Of blocks that were allocated in mode caching.
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
  if (caching_) fill_pools(stats);
  return stats;
}

void DeviceMemory::resetAccumulatedStats(c10::DeviceIndex /*device*/) {
  std::lock_guard<std::recursive_mutex> held(Machine::get().lock);
  for (auto* stat : {&allocations_, &allocated_, &requested_, &active_blocks_, &active_}) stat->reset_accumulated();
  segments_.reset_accumulated();
  ooms_ = retries_ = 0;
}

void DeviceMemory::resetPeakStats(c10::DeviceIndex /*device*/) {
  std::lock_guard<std::recursive_mutex> held(Machine::get().lock);
  for (auto* stat : {&allocations_, &allocated_, &requested_, &active_blocks_, &active_}) stat->reset_peak();
  segments_.reset_peaks();
}

std::pair<size_t, size_t> DeviceMemory::getMemoryInfo(c10::DeviceIndex /*device*/) {
  std::lock_guard<std::recursive_mutex> held(Machine::get().lock);
  return {reserved() > capacity_ ? 0 : capacity_ - reserved(), capacity_};
}

void DeviceMemory::set_capacity(size_t bytes) {
  std::lock_guard<std::recursive_mutex> held(Machine::get().lock);
  capacity_ = bytes;
  segments_.set_capacity(bytes);
}

void DeviceMemory::reset() {
  const OnDevice on(device_);
  std::lock_guard<std::recursive_mutex> held(Machine::get().lock);
  release_completed();
  frees_.clear();
  freed_.clear();  // else what a stream frees next would count together with all that it freed before
  reuse_intervals_.clear();
  for (auto* stat : {&allocations_, &allocated_, &requested_, &active_blocks_, &active_}) {
    stat->reset_accumulated();
    stat->reset_peak();
  }
  segments_.reset_accumulated();
  segments_.reset_peaks();
  ooms_ = retries_ = 0;
}

}  // namespace sim

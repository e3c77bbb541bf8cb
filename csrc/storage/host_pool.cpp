// One file: every way into the pool and out of it keeps the same accounts of bytes.
#include "storage/host_pool.h"

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <string>
#include <utility>

#include "storage/waits.h"

namespace bayplan::swap {
namespace {

constexpr uint64_t kGrowth = 20;  // what is page-locked ahead of need is at most a twentieth of what is held

std::atomic<uint64_t> copies{0};  // of all blocks

bool is_done(const HostBlock& block) { return !block.last.has_value() || block.last->event->query(); }

bool is_done(const HostArena& arena) {
  const std::vector<LastCopy> last = arena.ranges.copies();
  return std::all_of(last.begin(), last.end(), [](const LastCopy& copy) { return copy.event->query(); });
}

size_t power_of_two(size_t bytes) {
  size_t power = 1;
  while (power < bytes) power *= 2;
  return power;
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

EventPtr HostBlock::copied(c10::Stream stream) {
  last = LastCopy{record_on(stream), stream, ++copies};
  return last->event;
}

// ---- blocks ---------------------------------------------------------------------------------------------------------

HostBlock HostPool::acquire(size_t bytes, c10::Stream writer) {
  HostArena* arena = best_arena(bytes);
  if (arena != nullptr) {
    ++stats_.reuses;
    return cut(*arena, bytes, writer);
  }
  if (WithoutWaits::active()) {
    throw HostMemoryShort("no page-locked memory is free for " + std::to_string(bytes) +
                          " bytes, and none can be had while the device's allocator is at work: more is page-locked "
                          "before the next operator");
  }
  arena = grow(bytes, writer.device_type());
  return arena != nullptr ? cut(*arena, bytes, writer) : torch_block(bytes, writer);
}

HostArena* HostPool::best_arena(size_t bytes) const {
  HostArena* best = nullptr;
  std::pair<bool, size_t> least;
  for (const auto& arena : arenas_) {
    const auto fit = arena->ranges.fit(bytes);
    if (!fit.has_value() || (best != nullptr && *fit >= least)) continue;
    best = arena.get();
    least = *fit;
  }
  return best;
}

bool HostPool::has_room(size_t bytes) const { return best_arena(bytes) != nullptr; }

bool HostPool::can_serve_now(size_t bytes) {
  if (!WithoutWaits::active() || has_room(bytes)) return true;
  ++stats_.unserved;
  return false;
}

HostBlock HostPool::cut(HostArena& arena, size_t bytes, c10::Stream writer) {
  const Quiet quiet;
  std::vector<LastCopy> before;
  HostBlock block;
  block.arena = &arena;
  block.offset = arena.ranges.take(bytes, &before);
  for (const LastCopy& copy : before) {
    if (copy.stream != writer) copy.event->block(writer);
  }
  block.bytes = at::from_blob(arena.at(block.offset), {static_cast<int64_t>(bytes)}, at::kByte);
  if (!is_ready()) put_off_.store(true);
  return take(std::move(block), bytes);
}

HostBlock HostPool::take(HostBlock block, size_t bytes) {
  lets_go_ = false;
  stats_.used_bytes += bytes;
  stats_.peak_used_bytes = std::max(stats_.peak_used_bytes, stats_.used_bytes);
  return block;
}

void HostPool::give_back(HostBlock block) {
  const size_t bytes = block.bytes.nbytes();
  stats_.used_bytes -= bytes;
  ++returns_;
  if (block.arena != nullptr) {
    block.arena->ranges.give_back(block.offset, bytes, block.last);
    block.arena->idle_since = returns_;
  } else {
    block.idle_since = returns_;
    block.bytes = at::Tensor();
    const size_t whole = block.whole.nbytes();
    idle_[whole].push_back(std::move(block));
  }
  if (WithoutWaits::active()) {
    shed_later_ = true;
    put_off_.store(true);
  } else {
    shed();
  }
}

// ---- arenas ---------------------------------------------------------------------------------------------------------

void HostPool::hold(uint64_t bytes) {
  ++stats_.allocations;
  stats_.held_bytes += bytes;
  stats_.peak_held_bytes = std::max(stats_.peak_held_bytes, stats_.held_bytes);
}

// Null where PyTorch's allocator has to be asked.
HostArena* HostPool::grow(size_t bytes, c10::DeviceType type) {
  if (!exact(type)) {
    stats_.fallback = arenas_on_ ? "the device registers no memory of the process" : "arenas are switched off";
    return nullptr;
  }
  make_room(bytes);
  uint64_t ahead = stats_.held_bytes / kGrowth;
  if (limit_.has_value()) ahead = std::min(ahead, *limit_ - stats_.held_bytes);
  return add_arena(std::max<uint64_t>(bytes, ahead), *registrar_of(type));
}

HostArena* HostPool::add_arena(size_t bytes, const HostRegistrar& registrar) {
  auto arena = HostArena::make(bytes, registrar, &stats_.fallback);
  if (arena == nullptr) return nullptr;
  hold(bytes);
  return arenas_.emplace_back(std::move(arena)).get();
}

void HostPool::reserve(size_t bytes, c10::DeviceType type) {
  reserved_bytes_ = std::max<uint64_t>(reserved_bytes_, bytes);
  if (bytes > 0) lets_go_ = false;
  if (bytes == 0 || !exact(type) || has_room(bytes)) return;
  for (auto arena = oldest_idle_arena(); arena != arenas_.end(); arena = oldest_idle_arena()) drop(arena);
  grow_by(bytes, type);
}

void HostPool::grow_by(size_t bytes, c10::DeviceType type) {
  if (limit_.has_value()) bytes = std::min<uint64_t>(bytes, *limit_ - std::min(*limit_, stats_.held_bytes));
  if (bytes > 0 && exact(type)) add_arena(bytes, *registrar_of(type));
}

void HostPool::keep_ready(size_t block_bytes, size_t bytes) {
  ready_block_bytes_ = std::max(ready_block_bytes_, block_bytes);
  ready_bytes_ = std::max(ready_bytes_, bytes);
  if (!is_ready()) put_off_.store(true);
}

bool HostPool::is_ready() const {
  const bool block = ready_block_bytes_ == 0 || has_room(ready_block_bytes_);
  return block && stats_.held_bytes - stats_.used_bytes >= ready_bytes_;
}

// Twice the block, so that not every one that leaves has more page-locked.
void HostPool::catch_up(c10::DeviceType type) {
  put_off_.store(false);
  if (std::exchange(shed_later_, false)) shed();
  if (is_ready()) return;
  if (!has_room(ready_block_bytes_)) grow_by(2 * ready_block_bytes_, type);
  const uint64_t idle = stats_.held_bytes - stats_.used_bytes;
  if (idle < ready_bytes_) grow_by(ready_bytes_ - idle, type);
}

HostPool::Arenas::iterator HostPool::oldest_idle_arena() {
  auto oldest = arenas_.end();
  for (auto arena = arenas_.begin(); arena != arenas_.end(); ++arena) {
    if (!(*arena)->ranges.idle()) continue;
    if (oldest == arenas_.end() || (*arena)->idle_since < (*oldest)->idle_since) oldest = arena;
  }
  return oldest;
}

void HostPool::drop(Arenas::iterator arena) {
  for (const LastCopy& copy : (*arena)->ranges.copies()) await(*copy.event);
  stats_.held_bytes -= (*arena)->bytes();
  arenas_.erase(arena);
}

// ---- PyTorch's blocks -----------------------------------------------------------------------------------------------

HostBlock HostPool::torch_block(size_t bytes, c10::Stream writer) {
  const size_t whole = power_of_two(bytes);
  const auto same_size = idle_.find(whole);
  const bool has_idle = same_size != idle_.end() && !same_size->second.empty();
  HostBlock block;
  // A block whose copy still runs would make the writer wait, so new memory is better, where there is any.
  if (has_idle && (!fits(whole) || is_done(same_size->second.front()))) {
    block = std::move(same_size->second.front());
    same_size->second.pop_front();
    if (block.last.has_value()) block.last->event->block(writer);
    ++stats_.reuses;
  } else {
    make_room(whole);
    block = allocate(whole, writer.device_type());
  }
  const Quiet quiet;
  block.bytes = block.whole.narrow(0, 0, static_cast<int64_t>(bytes));
  return take(std::move(block), bytes);
}

HostBlock HostPool::allocate(size_t bytes, c10::DeviceType type) {
  const Quiet quiet;
  note_wait(Awaited::kPageLocking);
  HostBlock block;
  try {
    const auto options = at::TensorOptions().dtype(at::kByte).pinned_memory(true);
    block.whole = at::empty({static_cast<int64_t>(bytes)}, options);
  } catch (const std::exception& error) {
    throw HostMemoryShort("cannot page-lock " + std::to_string(bytes) + " bytes of host memory beside the " +
                          std::to_string(stats_.held_bytes) + " bytes that swapping holds (" +
                          first_line(error.what()) +
                          "): free host memory, raise the limit of locked memory, or plan to swap less");
  }
  asked_torch_.insert(type);
  hold(bytes);
  return block;
}

void HostPool::drop_oldest(Blocks::iterator size) {
  HostBlock block = std::move(size->second.front());
  size->second.pop_front();
  note_wait(Awaited::kPageLocking);
  if (block.last.has_value()) await(*block.last->event);
  stats_.held_bytes -= block.whole.nbytes();
}

// ---- giving back ----------------------------------------------------------------------------------------------------

// The idle arena of longest standing, or else one of the largest blocks; whether there was any.
bool HostPool::drop_idle() {
  const auto arena = oldest_idle_arena();
  if (arena != arenas_.end()) {
    drop(arena);
    return true;
  }
  for (auto size = idle_.rbegin(); size != idle_.rend(); ++size) {
    if (size->second.empty()) continue;
    drop_oldest(std::prev(size.base()));
    return true;
  }
  return false;
}

void HostPool::make_room(size_t bytes) {
  while (!fits(bytes)) {
    if (drop_idle()) continue;
    throw HostMemoryShort("swapping " + std::to_string(bytes) +
                          " more bytes to the host would exceed host_limit_bytes=" + std::to_string(*limit_) +
                          ", of which " + std::to_string(stats_.used_bytes) +
                          " are in use: raise the limit or plan to swap less");
  }
}

// Sizes that are not asked for any more (sequences change their length) must not stay for ever: what has been idle for
// longest goes, if its copy is done; where far too much lies idle, the host waits for it.
void HostPool::shed() {
  if (lets_go_) return trim();
  const uint64_t ready = 2 * ready_block_bytes_ + ready_bytes_;
  const uint64_t usual = std::max({stats_.peak_used_bytes, reserved_bytes_, ready});
  while (stats_.held_bytes > 2 * usual) {
    const bool far_beyond = stats_.held_bytes > 4 * usual;
    const auto arena = oldest_idle_arena();
    if (arena != arenas_.end() && (far_beyond || is_done(**arena))) {
      drop(arena);
      continue;
    }
    auto oldest = idle_.end();
    for (auto size = idle_.begin(); size != idle_.end(); ++size) {
      if (size->second.empty() || !(far_beyond || is_done(size->second.front()))) continue;
      const bool older = oldest == idle_.end() || size->second.front().idle_since < oldest->second.front().idle_since;
      if (older) oldest = size;
    }
    if (oldest == idle_.end()) return;
    drop_oldest(oldest);
    if (oldest->second.empty()) idle_.erase(oldest);
  }
}

void HostPool::trim() {
  lets_go_ = true;
  while (drop_idle()) {
  }
  if (!is_ready()) put_off_.store(true);  // who may not wait still counts on it
  reserved_bytes_ = 0;
  stats_.peak_used_bytes = stats_.used_bytes;
  // PyTorch's allocator keeps what it gets back for the next request, whoever makes it.
  for (const c10::DeviceType type : std::exchange(asked_torch_, {})) at::getHostAllocator(type)->empty_cache();
}

size_t arena_bytes(const std::vector<std::pair<bool, size_t>>& requests) {
  FreeRanges endless(std::numeric_limits<size_t>::max() / 2);
  std::vector<std::pair<size_t, size_t>> taken;  // offset and bytes
  for (const auto& [takes, number] : requests) {
    if (takes) {
      taken.emplace_back(endless.take(number, nullptr), number);
    } else {
      const auto& [offset, bytes] = taken.at(number);
      endless.give_back(offset, bytes, std::nullopt);
    }
  }
  return endless.high_water();
}

}  // namespace bayplan::swap

#include "storage/host_pool.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <iterator>
#include <string>

namespace bayplan::swap {
namespace {

bool is_done(const HostBlock& block) { return block.last_copy == nullptr || block.last_copy->query(); }

}  // namespace

HostBlock HostPool::acquire(size_t bytes, c10::Stream writer) {
  const auto same_size = idle_.find(bytes);
  const bool has_idle = same_size != idle_.end() && !same_size->second.empty();
  // A block whose copy still runs would make the writer wait, so new memory is better, where there is any.
  if (has_idle && (!fits(bytes) || is_done(same_size->second.front()))) {
    return reuse(same_size->second, writer);
  }
  make_room(bytes);
  return allocate(bytes);
}

HostBlock HostPool::reuse(std::deque<HostBlock>& blocks, c10::Stream writer) {
  HostBlock block = std::move(blocks.front());
  blocks.pop_front();
  if (block.last_copy != nullptr) {
    block.last_copy->block(writer);
  }
  ++stats_.reuses;
  return take(std::move(block));
}

HostBlock HostPool::take(HostBlock block) {
  stats_.used_bytes += block.bytes.nbytes();
  stats_.peak_used_bytes = std::max(stats_.peak_used_bytes, stats_.used_bytes);
  return block;
}

HostBlock HostPool::allocate(size_t bytes) {
  const Quiet quiet;
  at::Tensor memory;
  try {
    memory = at::empty({static_cast<int64_t>(bytes)}, at::TensorOptions().dtype(at::kByte).pinned_memory(true));
  } catch (const std::exception& error) {
    throw HostMemoryShort("cannot page-lock " + std::to_string(bytes) + " bytes of host memory beside the " +
                          std::to_string(stats_.held_bytes) + " bytes that swapping holds (" +
                          std::string(error.what()).substr(0, std::string(error.what()).find('\n')) +
                          "): free host memory, raise the limit of locked memory, or plan to swap less");
  }
  ++stats_.allocations;
  stats_.held_bytes += bytes;
  stats_.peak_held_bytes = std::max(stats_.peak_held_bytes, stats_.held_bytes);
  return take(HostBlock{std::move(memory), nullptr});
}

void HostPool::give_back(HostBlock block) {
  const size_t bytes = block.bytes.nbytes();
  stats_.used_bytes -= bytes;
  block.idle_since = ++returns_;
  idle_[bytes].push_back(std::move(block));
  shed();
}

// Sizes that are not asked for any more (sequences change their length) must not stay for ever: what has been idle for
// longest goes, if its copy is done; where far too much lies idle, the host waits for it.
void HostPool::shed() {
  while (stats_.held_bytes > 2 * stats_.peak_used_bytes) {
    const bool far_beyond = stats_.held_bytes > 4 * stats_.peak_used_bytes;
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

void HostPool::make_room(size_t bytes) {
  for (auto size = idle_.rbegin(); !fits(bytes) && size != idle_.rend();) {
    if (size->second.empty()) {
      ++size;
    } else {
      drop_oldest(std::prev(size.base()));
    }
  }
  if (!fits(bytes)) {
    throw HostMemoryShort("swapping " + std::to_string(bytes) +
                          " more bytes to the host would exceed host_limit_bytes=" + std::to_string(*limit_) +
                          ", of which " + std::to_string(stats_.used_bytes) +
                          " are in use: raise the limit or plan to swap less");
  }
}

void HostPool::drop_oldest(std::map<size_t, std::deque<HostBlock>>::iterator size) {
  HostBlock block = std::move(size->second.front());
  size->second.pop_front();
  if (block.last_copy != nullptr) {
    block.last_copy->synchronize();
  }
  stats_.held_bytes -= block.bytes.nbytes();
}

void HostPool::trim() {
  for (auto size = idle_.begin(); size != idle_.end(); ++size) {
    while (!size->second.empty()) {
      drop_oldest(size);
    }
  }
}

}  // namespace bayplan::swap

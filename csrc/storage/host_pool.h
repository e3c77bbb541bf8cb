// Page-locked host memory that is used again and again: allocating it is slow, and a step needs the same sizes each
// time.
#pragma once

#include <ATen/core/Tensor.h>

#include <deque>
#include <map>
#include <optional>
#include <stdexcept>

#include "storage/lanes.h"

namespace bayplan::swap {

// The host has no room for a tensor that should leave; the text says how much was asked for, the limit and the remedy.
struct HostMemoryShort : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct HostBlock {
  at::Tensor bytes;         // page-locked, exactly as long as what it holds
  EventPtr last_copy;       // after it the block may be overwritten; null if it was never copied
  uint64_t idle_since = 0;  // by order of return
};

struct HostStats {
  uint64_t held_bytes = 0;  // in use and idle
  uint64_t used_bytes = 0;  // of these, in use
  uint64_t peak_held_bytes = 0;
  uint64_t peak_used_bytes = 0;  // ever
  uint64_t allocations = 0;
  uint64_t reuses = 0;
};

// Not thread-safe: the store locks. Blocks are handed out by exact size, oldest first.
class HostPool {
 public:
  // A block that `writer` may write to as soon as its queue gets there: if the block's last copy is not done, the
  // stream waits for it. Throws HostMemoryShort.
  HostBlock acquire(size_t bytes, c10::Stream writer);
  void give_back(HostBlock block);

  // Bytes that the pool may hold; nothing: what the host gives, and idle blocks at most as much as was ever in use at
  // once. Blocks in use are never taken away.
  void set_limit(std::optional<uint64_t> bytes) { limit_ = bytes; }
  std::optional<uint64_t> limit() const { return limit_; }

  // Frees every idle block, waiting for the copies that use them.
  void trim();

  const HostStats& stats() const { return stats_; }
  void reset_peak() { stats_.peak_held_bytes = stats_.held_bytes; }

 private:
  HostBlock reuse(std::deque<HostBlock>& blocks, c10::Stream writer);
  HostBlock allocate(size_t bytes);
  bool fits(size_t bytes) const { return !limit_.has_value() || stats_.held_bytes + bytes <= *limit_; }
  void make_room(size_t bytes);
  void shed();
  HostBlock take(HostBlock block);
  void drop_oldest(std::map<size_t, std::deque<HostBlock>>::iterator size);

  std::map<size_t, std::deque<HostBlock>> idle_;
  std::optional<uint64_t> limit_;
  uint64_t returns_ = 0;
  HostStats stats_;
};

}  // namespace bayplan::swap

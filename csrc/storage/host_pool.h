// Page-locked host memory that is used again and again: allocating it is slow, and a step needs the same sizes each
// time. It lies in arenas, which take what was asked for and no more, and which are given back to the system. Where a
// device page-locks nothing but by PyTorch's host allocator, that gives blocks, of powers of two, which it keeps.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "storage/host_arena.h"
#include "storage/lanes.h"

namespace bayplan::swap {

// The host has no room for a tensor that should leave; the text says how much was asked for, the limit and the remedy.
struct HostMemoryShort : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct HostBlock {
  at::Tensor bytes = {};                        // page-locked, exactly as long as what it holds
  std::optional<LastCopy> last = std::nullopt;  // after it the block may be overwritten
  HostArena* arena = nullptr;                   // where it lies; null: it is one of PyTorch's, `whole`
  size_t offset = 0;
  at::Tensor whole = {};
  uint64_t idle_since = 0;  // by order of return

  // A copy to or from the block has just been queued on the stream: its end.
  EventPtr copied(c10::Stream stream);
};

struct HostStats {
  uint64_t held_bytes = 0;  // page-locked: in use and idle
  uint64_t used_bytes = 0;  // in use, by the sizes of what they hold
  uint64_t peak_held_bytes = 0;
  uint64_t peak_used_bytes = 0;  // since everything idle was given back
  uint64_t allocations = 0;
  uint64_t reuses = 0;
  uint64_t unserved = 0;      // looks for a block that nobody could wait for
  std::string fallback = {};  // why PyTorch's host allocator, with its rounding, was asked; empty: it was not
};

// A device's; its store locks.
class HostPool {
 public:
  // A block that `writer` may write to as soon as its queue gets there: the stream waits for the copies that its bytes
  // were used by. Throws HostMemoryShort.
  HostBlock acquire(size_t bytes, c10::Stream writer);
  void give_back(HostBlock block);
  // Whether `acquire` would find memory that is page-locked already.
  bool has_room(size_t bytes) const;
  // Whether it would do without waiting where nobody may wait (waits.h); counted if not.
  bool can_serve_now(size_t bytes);

  // Page-locks an arena that holds so many bytes beside each other, unless there is one that is free; within the limit,
  // as much as it allows. Idle memory is given back before.
  void reserve(size_t bytes, c10::DeviceType type);

  // From now on so many bytes beside each other, and so many in all, are to be free for whoever may not wait: at least
  // as much as was said before. Within the limit, and where there are arenas.
  void keep_ready(size_t block_bytes, size_t bytes);
  // Nothing more is kept ready.
  void keep_nothing_ready() { ready_block_bytes_ = ready_bytes_ = 0; }
  // Whether some of that was used since, or memory is to be given back that could not be at once. Needs no lock.
  bool has_put_off() const { return put_off_.load(std::memory_order_relaxed); }
  // Does what was put off: the host waits for the device.
  void catch_up(c10::DeviceType type);

  // Bytes that the pool may hold; nothing: what the host gives. Blocks in use are never taken away.
  void set_limit(std::optional<uint64_t> bytes) { limit_ = bytes; }
  // That of each device that was not used so far.
  static void set_first_limit(std::optional<uint64_t> bytes) { first_limit_ = bytes; }
  std::optional<uint64_t> limit() const { return limit_; }
  // Whether memory lies in arenas, of all devices; else all is PyTorch's, for comparison.
  static void set_arenas(bool on) { arenas_on_.store(on); }
  // Whether devices of that type use arenas: then tensors take their bytes, else the next power of two.
  bool exact(c10::DeviceType type) const { return arenas_on_ && registrar_of(type) != nullptr; }

  // Frees everything idle, waiting for the copies that use it; what is in use now follows when it comes back, unless
  // somebody has asked for memory by then.
  void trim();

  const HostStats& stats() const { return stats_; }
  void reset_peak() { stats_.peak_held_bytes = stats_.held_bytes; }

 private:
  using Blocks = std::map<size_t, std::deque<HostBlock>>;
  using Arenas = std::vector<std::unique_ptr<HostArena>>;

  HostArena* best_arena(size_t bytes) const;
  HostBlock cut(HostArena& arena, size_t bytes, c10::Stream writer);
  HostArena* grow(size_t bytes, c10::DeviceType type);
  HostArena* add_arena(size_t bytes, const HostRegistrar& registrar);
  HostBlock torch_block(size_t bytes, c10::Stream writer);
  HostBlock allocate(size_t bytes, c10::DeviceType type);
  HostBlock take(HostBlock block, size_t bytes);
  void hold(uint64_t bytes);
  bool fits(size_t bytes) const { return !limit_.has_value() || stats_.held_bytes + bytes <= *limit_; }
  void make_room(size_t bytes);
  void grow_by(size_t bytes, c10::DeviceType type);
  bool is_ready() const;
  bool drop_idle();
  void shed();
  Arenas::iterator oldest_idle_arena();
  void drop(Arenas::iterator arena);
  void drop_oldest(Blocks::iterator size);

  Arenas arenas_;
  Blocks idle_;  // of PyTorch's, by what they take
  static inline std::optional<uint64_t> first_limit_ = std::nullopt;
  std::optional<uint64_t> limit_ = first_limit_;
  static inline std::atomic<bool> arenas_on_{true};
  uint64_t returns_ = 0;
  uint64_t reserved_bytes_ = 0;
  size_t ready_block_bytes_ = 0;
  size_t ready_bytes_ = 0;
  bool shed_later_ = false;
  bool lets_go_ = false;  // nobody has asked for memory since `trim`
  std::atomic<bool> put_off_{false};
  std::set<c10::DeviceType> asked_torch_;
  HostStats stats_;
};

// The bytes of an arena that serves these requests, one after the other: (true, bytes) takes a block, (false, n) gives
// back the n-th that was taken.
size_t arena_bytes(const std::vector<std::pair<bool, size_t>>& requests);

}  // namespace bayplan::swap

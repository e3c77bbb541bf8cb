// The bookkeeping of a caching allocator by the public rules of PyTorch's: segments of device memory, cut into chunks
// that are in use or cached.
#pragma once
#include <c10/core/CachingDeviceAllocator.h>

#include <array>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

#include "sim/addresses.h"
#include "sim/clock.h"

namespace sim {

struct SegmentRules {
  static constexpr size_t kUnlimited = std::numeric_limits<size_t>::max();
  bool expandable = false;
  bool stitching = false;
  size_t max_split = kUnlimited;                     // Larger chunks are never cut.
  size_t max_non_split_rounding = size_t{20} << 20;  // How much larger than a request such a chunk may be.
  Nanoseconds take_ns = 0;                           // What the driver takes for one segment or page,
  Nanoseconds return_ns = 0;                         // and for giving one back.
};

// Bytes that the driver gave at once, or a range of addresses that pages are mapped into.
struct Segment {
  size_t begin;
  size_t bytes;
  size_t stream;
  bool small;             // Of the pool for requests of up to 1 MiB.
  size_t page = 0;        // Of an expandable one: what is mapped and unmapped at once.
  bool stitched = false;  // Addresses for pages of other segments.
  bool oversize = false;  // Counted as such: the rules may have changed since.
  bool expandable() const { return page != 0; }
};

struct Chunk {
  enum class State : uint8_t { kFree, kUsed, kWaiting, kLent };  // Waiting for recorded streams; a part of a stitch.
  size_t offset;
  size_t bytes;
  Segment* segment;
  State state = State::kFree;
  bool mapped = true;
  size_t requested = 0;
  bool oversize = false;      // Likewise, while it is in use.
  std::vector<Chunk*> parts;  // Of a stitched one.
};

struct SegmentRequest {
  size_t requested;
  size_t bytes;          // Rounded up to 512.
  size_t segment_bytes;  // What is asked of the driver if no chunk fits.
  size_t stream;
  bool small;
};

// A step of the allocator, as PyTorch's memory viewer names them.
struct MemoryEvent {
  const char* action;
  size_t address;  // Of "oom": the device's free bytes.
  size_t bytes;
  size_t stream;
  Nanoseconds time;
  const char* label;
};

struct Stitches {
  uint64_t count = 0;
  uint64_t parts = 0;
  uint64_t bytes = 0;
};

// Every method is called under the machine's lock.
class Segments {
 public:
  explicit Segments(AddressSpace& addresses) : addresses_(addresses) {}

  const SegmentRules& rules() const { return rules_; }
  // Other rules from now on; ranges of addresses without any page are given up.
  void set_rules(const SegmentRules& rules);
  void set_capacity(size_t bytes) { capacity_ = bytes; }
  // At most so many bytes may be reserved, as CUDA's memory fraction says; none: the capacity alone counts.
  void set_limit(std::optional<size_t> bytes) { limit_ = bytes; }
  std::optional<size_t> limit() const { return limit_; }

  static SegmentRequest request(size_t bytes, size_t stream);
  // Each of these gives a chunk that is large enough, taken from the free ones, or null.
  Chunk* find(const SegmentRequest& request);    // A cached one.
  Chunk* grow(const SegmentRequest& request);    // A new one from the driver, within limit and capacity.
  Chunk* stitch(const SegmentRequest& request);  // New addresses for free pages of several segments.
  // Cuts off what the request does not need; the chunk is in use from now on.
  void use(Chunk& chunk, const SegmentRequest& request);
  void request_free(Chunk& chunk, bool waits);
  void complete_free(Chunk& chunk);
  // Gives chunks that are too large to be cut back to the driver, as many as one request needs; whether there were.
  bool release_oversize(const SegmentRequest& request);
  // Gives back what is whole: free segments and, of expandable ones, free pages.
  void release_free();

  size_t reserved() const { return static_cast<size_t>(stats_.reserved_bytes[0].current); }
  // Bytes of blocks that lie outside of segments, given out in the other mode: they count as reserved.
  void adopt(size_t bytes) { stats_.reserved_bytes[0].increase(bytes); }
  void disown(size_t bytes) { stats_.reserved_bytes[0].decrease(bytes); }
  const c10::CachingDeviceAllocator::DeviceStats& stats() const { return stats_; }
  void count_synchronization() { ++stats_.num_sync_all_streams; }
  void reset_accumulated();
  void reset_peaks();
  const Stitches& stitches() const { return stitches_; }

  // Keeps the last `most` steps; none: keeps no steps.
  void record(size_t most);
  void note(const char* action, size_t address, size_t bytes, size_t stream);
  const std::deque<MemoryEvent>& events() const { return events_; }
  // Of each run of mapped memory its chunks, by address.
  std::vector<std::vector<const Chunk*>> runs() const;
  size_t address_of(size_t offset) const { return reinterpret_cast<size_t>(addresses_.at(offset)); }

 private:
  using Key = std::tuple<size_t, size_t, size_t>;  // Stream, bytes, offset.
  struct Pool {
    std::set<Key> free;
    std::set<std::pair<size_t, size_t>> unmapped;  // Stream, offset.
    int64_t split = 0;                             // Free chunks that share an ordinary segment with others,
    int64_t split_bytes = 0;                       // and their bytes.
  };
  Pool& pool_of(const Chunk& chunk) { return pools_[chunk.segment->small ? 0 : 1]; }
  Chunk* previous(const Chunk& chunk);
  Chunk* next(const Chunk& chunk);
  bool is_split(const Chunk& chunk) { return previous(chunk) != nullptr || next(chunk) != nullptr; }
  Chunk& chunk_at(const Key& key) { return chunks_.at(std::get<2>(key)); }
  size_t room(const Key& key);
  void insert(Chunk& chunk);
  void erase(Chunk& chunk);
  // Joins a chunk that is in no set with its free neighbours; what they are together, in no set.
  Chunk& joined(Chunk& chunk);
  // Cuts the chunk, which is in no set, after so many bytes; the rest, in no set.
  Chunk& cut(Chunk& chunk, size_t bytes);
  bool should_split(const Chunk& chunk, const SegmentRequest& request) const;
  Segment& new_segment(const Segment& segment);
  void release(Chunk& chunk);
  Chunk& room_in_ranges(const SegmentRequest& request);
  Chunk* grow_range(const SegmentRequest& request);
  Chunk* map(Chunk& chunk, size_t bytes);
  void unmap(Chunk& chunk);
  Chunk& carve(Chunk& chunk, size_t begin, size_t bytes);
  void unstitch(Chunk& chunk);
  void count_split(bool small);
  // Changes a statistic of the pool and the sum of both.
  void count(c10::CachingAllocator::StatArray& stat, bool small, int64_t amount);

  AddressSpace& addresses_;
  SegmentRules rules_;
  size_t capacity_ = 0;
  std::optional<size_t> limit_;
  std::map<size_t, Chunk> chunks_;                       // By offset.
  std::map<size_t, std::unique_ptr<Segment>> segments_;  // By begin.
  std::array<Pool, 2> pools_;                            // Small, large.
  c10::CachingDeviceAllocator::DeviceStats stats_;
  Stitches stitches_;
  size_t most_events_ = 0;
  std::deque<MemoryEvent> events_;
};

}  // namespace sim

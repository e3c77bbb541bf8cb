// A device's memory: capacity, blocks, statistics, and when freed bytes may be used again.
#pragma once
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/util/flat_hash_map.h>

#include <atomic>
#include <deque>
#include <memory>
#include <vector>

#include "sim/addresses.h"
#include "sim/machine.h"
#include "sim/segments.h"

namespace sim {

struct Block {
  size_t offset;
  size_t bytes;  // Rounded up to 512; in mode caching those of its chunk.
  size_t requested;
  size_t stream;                         // The allocating one; the bytes are its own again once freed.
  c10::SmallVector<size_t, 2> recorded;  // Others that record_stream named.
  Shadow shadow;
  // Since when the program has done without it: handed over to the swap engine, or named by record_stream.
  enum class Given : uint8_t { kNot, kRecorded, kHandedOver } given = Given::kNot;
  size_t given_to = 0;      // The stream that still uses it.
  uint64_t given_when = 0;  // Kernels launched until then.
  Chunk* chunk = nullptr;   // Of a segment, if it was allocated in mode caching.
};

// Stream-ordered. In mode exact any request fits while the bytes in use leave room for it, wherever they lie. In mode
// caching it needs a chunk of a segment, by PyTorch's rules for CUDA (segments).
class DeviceMemory final : public c10::DeviceAllocator {
 public:
  static DeviceMemory& get() { return at(current_device()); }
  static DeviceMemory& at(size_t device);
  // The memory that an address lies in, or null.
  static DeviceMemory* of(const void* address);
  // For the devices of that count; a device's memory lives as long as the process.
  static void make(size_t count);
  // What PyTorch knows: hands each request to the memory of the current or the named device.
  static c10::DeviceAllocator* front();

  c10::DataPtr allocate(size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override;
  void copy_data(void* to, const void* from, size_t bytes) const override;
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t pool) override;
  void recordStream(const c10::DataPtr& data, c10::Stream stream) override;
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override;
  void resetAccumulatedStats(c10::DeviceIndex device) override;
  void resetPeakStats(c10::DeviceIndex device) override;
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override;

  void free(void* address);
  // The block of any device that starts at this address, or null.
  static Block* find(const void* address);

  // The swap engine takes a block away from the program, whose bytes a stream still reads.
  static void give(Block& block, size_t stream);
  // The program has it back, if another stream than that one uses it.
  static void note_use(Block& block, size_t stream);
  static bool any_given() { return handed_over_ > 0; }
  // Since the last reset, of each block that was given away and freed: kernels launched from the one to the moment at
  // which its bytes could be used again.
  std::vector<uint64_t> reuse_intervals() const;

  c10::Device device() const { return sim_device(device_); }
  size_t capacity() const { return capacity_; }
  size_t in_use() const { return static_cast<size_t>(active_.current); }
  void set_capacity(size_t bytes);
  // Mode caching by these rules, none: mode exact. Waits for the device and gives all free memory back; blocks that are
  // alive keep their bytes.
  void set_rules(std::optional<SegmentRules> rules);
  bool caching() const { return caching_; }
  const Segments& segments() const { return segments_; }
  Segments& segments() { return segments_; }
  // Zeroes the statistics; what is in use stays counted as in use.
  void reset();

 private:
  explicit DeviceMemory(size_t device);
  struct Use {
    size_t stream;
    Point end;  // Of what the recorded stream held at the time of the free.
    bool over = false;
  };
  struct Deferred {
    std::unique_ptr<Block> block;
    std::vector<Use> uses;
  };
  // Bytes that a stream freed and has not allocated again. Another stream may have them once it is ordered after the
  // latest of these frees, or the host's clock has passed it.
  struct Freed {
    size_t bytes = 0;
    uint64_t tick = 0;
    Point point;
  };
  using Held = std::unique_lock<std::recursive_mutex>;
  bool fits(const Block& block) const { return missing(block) == 0; }
  size_t missing(const Block& block) const;
  size_t held_by_others(size_t stream) const;
  // Gets the bytes by waiting and by the pressure handler, or refuses. The lock is not held while the handler runs.
  void reach_room(const Block& block, Held& held);
  // Lets the host's clock jump, end by end, until the bytes fit or nothing is left to wait for.
  void make_room(const Block& block);
  bool jump_to_next_end(size_t stream);
  // Gives back what recorded streams are done with. A request for memory looks at their events, which costs the host.
  void release_completed(bool requested = false);
  void recycle(std::unique_ptr<Block> block);
  void refuse(const Block& block);
  // Mode caching: a chunk for the block, or a refusal. The lock is held while the free-memory callback runs.
  void take_chunk(Block& block);
  bool ask_callback(const Block& block);
  // Waits for the recorded streams of freed blocks, then gives back what is whole.
  void release_cached();
  void refuse(const SegmentRequest& request);
  void fill_pools(c10::CachingDeviceAllocator::DeviceStats& stats) const;
  // A free counts as a write on the block's own stream, whose next allocation may be these bytes: it is judged then, so
  // that a wait in between counts. What recorded streams did is excused: the block waits for them.
  struct Free {
    Access access;
    Shadow shadow;
    VectorClock excused;
    size_t requested;
  };
  void note_free(Block& block, const std::vector<Use>& uses);
  void judge_frees(size_t stream);
  static void forget_given(Block& block);
  void take_freed(const Block& block);
  void count(const Block& block, int sign);
  size_t reserved() const { return caching_ ? segments_.reserved() : static_cast<size_t>(active_.current); }

  const size_t device_;
  AddressSpace addresses_;
  Segments segments_{addresses_};
  bool caching_ = false;
  ska::flat_hash_map<size_t, std::unique_ptr<Block>> blocks_;  // By offset.
  std::deque<Deferred> deferred_;
  std::vector<Freed> freed_;              // By stream.
  std::vector<std::vector<Free>> frees_;  // Not judged yet, by stream.
  size_t capacity_ = 0;
  inline static std::atomic<size_t> handed_over_{0};  // Blocks that the swap engine has, of all devices.
  std::vector<uint64_t> reuse_intervals_;
  c10::CachingDeviceAllocator::Stat allocations_, allocated_, requested_, active_blocks_, active_;
  int64_t ooms_ = 0;
  int64_t retries_ = 0;
};

}  // namespace sim

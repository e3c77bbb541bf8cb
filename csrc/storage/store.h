// Storages that have left the device. A storage's data pointer is taken out and an `Entry` put in its place, so that
// every view and every variable that autograd saved follows; reading it without the guard throws. When the storage
// dies, so does its entry.
//
// The store moves data and keeps memory alive; *when* something happens, and which stream waits for which, is its
// caller's business (step.h executes a plan). Only `ensure_in`, `park` and a storage's death order everything
// themselves.
#pragma once

#include <c10/core/StorageImpl.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "profiler/by_device.h"
#include "storage/host_pool.h"
#include "storage/lanes.h"
#include "storage/waits.h"

namespace bayplan::swap {

enum class Place : uint8_t {
  kLeaving,  // being copied out; its device block is whole and still its own
  kAway,     // only on the host
  kComing,   // being copied into a new device block, which is not the storage's yet
};

// What stands in the place of a storage's data.
struct Entry {
  c10::Device device;
  c10::Stream home;  // the compute stream whose memory pool its blocks come from
  size_t bytes;
  Place place = Place::kLeaving;
  c10::DataPtr block = {};  // leaving: the old block; coming: the new one
  HostBlock host = {};
  EventPtr copied_out = nullptr;
  EventPtr copied_in = nullptr;
  bool for_all = false;  // it left behind all streams seen, and all wait for what returns
};

// Which streams may use a storage that comes back: the one that asks, which is told to wait, or any. Others know
// nothing of the copy, so for them the host waits.
enum class Users : uint8_t { kAsker, kAnyStream };

// How a storage that an operator wanted was found.
enum class Arrival : uint8_t { kPresent, kCancelled, kEarly, kFetched };

struct StoreCounts {
  uint64_t swapped_out = 0;
  uint64_t swapped_in = 0;  // copies in, planned or on demand
  uint64_t fetched = 0;     // on demand: it was away
  uint64_t cancelled = 0;   // on demand: it was still leaving
  uint64_t early = 0;       // on demand: its planned swap-in was under way
  uint64_t died = 0;        // freed by the program while it was out
  uint64_t out_bytes = 0;
  uint64_t in_bytes = 0;
};

StoreCounts operator-(const StoreCounts& now, const StoreCounts& before);

// Told of every storage that leaves: its address, bytes and the stream of the copy. From then on the program must not
// touch the block; a race checker counts this as an exclusive access. See `set_handover_observer`.
using HandoverObserver = void (*)(const void* address, size_t bytes, int64_t stream_id);

// Storages of all devices that are out now.
inline std::atomic<int64_t> absent_storages{0};

// One for each device: what waits for one device with its store keeps nobody from another's. A thread that has a store
// asks for no other. Public functions lock; they may be called from any thread.
class Store {
 public:
  static Store& of(c10::Device device);
  // All that have been asked for, in the order of their devices.
  static void for_each(const std::function<void(Store&)>& visit);

  // The entry that stands in for the storage's data, or null.
  static Entry* entry_of(c10::StorageImpl& storage);

  // Why a storage cannot leave, or null: it is out already, empty, shared copy-on-write, from another process, or in
  // memory that is not the allocator's, or its address was given away.
  static const char* why_it_stays(c10::StorageImpl& storage);
  // Somebody else (another library or process, an operation between devices) knows the storage's address: it stays
  // until they have let it go as often, or as long as it lives.
  void hold(c10::StorageImpl& storage);
  void let_go(c10::StorageImpl& storage);

  // Queues the copy out on the lane and hands the storage over; its block stays allocated until `release`.
  void swap_out(c10::StorageImpl& storage, c10::Stream home, bool for_all = false);
  // Gives the block of a leaving storage back to its pool. The compute stream must have been told to wait for the copy.
  void release(c10::StorageImpl& storage);
  // Gives that block to the allocator now, which keeps it until it finds the copy done: PyTorch's `record_stream`.
  void leave_to_allocator(c10::StorageImpl& storage);
  // Allocates the block of a storage that is away, from the pool of its home stream. Throws OutOfMemoryError.
  c10::DataPtr allocate(const Entry& entry);
  // Queues the copy into that block on the lane.
  void swap_in(c10::StorageImpl& storage, c10::DataPtr block);
  // Undoes a swap-in: the storage is away again, and its home stream waits for the copy.
  void recall(c10::StorageImpl& storage);
  // Gives a coming storage its data. The compute stream must have been told to wait for the copy.
  void install(c10::StorageImpl& storage);

  // The program works on that stream. Once it has been seen on several, what leaves `for_all` is copied behind all of
  // them, and all wait for what returns: who used it, and who will, is not told apart. Sessions know who does. Takes no
  // lock that anybody waits under.
  void see(c10::Stream stream) {
    if (latest_seen_.load(std::memory_order_relaxed) != stream.id()) see_another(stream);
  }
  bool several_streams() const { return several_.load(std::memory_order_relaxed); }

  // Puts a storage into another block of its home stream's pool, by a copy on that stream, if the allocator gives one
  // between these addresses; else it stays where it is. Whether it moved.
  bool move(c10::StorageImpl& storage, c10::Stream home, uintptr_t begin, uintptr_t end);

  // Makes a storage readable for whatever is queued next on the calling thread's current stream, or on any stream,
  // wherever its data is. `copied`, if given, becomes the end of the copy that the users are told to wait for; it stays
  // as it is where the storage was present.
  Arrival ensure_in(c10::StorageImpl& storage, Users users, EventPtr* copied = nullptr);
  // Swaps out with every wait that this needs, and releases the block at once.
  void park(c10::StorageImpl& storage);

  StoreCounts counts() const { return counts_; }
  HostPool& host() { return host_; }
  // Of all stores.
  static void set_handover_observer(HandoverObserver observer) { observer_.store(observer); }
  // Called, under a store's lock, when the first storage of all leaves and when the last is back.
  static void set_listener(void (*listener)()) { listener_.store(listener); }

  StoreMutex lock;

 private:
  static void drop(void* entry);
  void see_another(c10::Stream stream);
  // Those on which the program works, if they are several.
  std::vector<c10::Stream> several();
  void drop_block(Entry& entry, c10::Stream user);
  void settle(Entry& entry);
  void restore(c10::StorageImpl& storage, Entry& entry);
  void hand_back(c10::StorageImpl& storage, Entry& entry, c10::Event& copied, Users users);
  static void change_absent(int64_t by);

  struct Held {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    uint64_t times = 0;
  };

  HostPool host_;
  std::mutex seen_mutex_;
  std::vector<c10::Stream> seen_;
  std::atomic<bool> several_{false};
  std::atomic<c10::StreamId> latest_seen_{std::numeric_limits<c10::StreamId>::min()};
  std::unordered_map<const c10::StorageImpl*, Held> held_;
  StoreCounts counts_;
  static inline std::atomic<HandoverObserver> observer_{nullptr};
  static inline std::atomic<void (*)()> listener_{nullptr};
};

}  // namespace bayplan::swap

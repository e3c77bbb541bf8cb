// One file: every way that a storage goes, from leaving to coming back or dying, under one lock.
#include "storage/store.h"

#include <c10/core/Allocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/COW.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <iterator>
#include <mutex>

#include "profiler/displaced.h"
#include "storage/reading.h"

namespace bayplan::swap {
namespace {

std::string absence_message(size_t bytes) {
  return "this tensor's storage (" + std::to_string(bytes) +
         " bytes) is swapped out to the host: read it through PyTorch's operators, or call "
         "runtime.swap.ensure_in(tensor) first";
}

ByDevice<std::atomic<Store*>> stores;

int64_t displaced(const Entry& entry) { return block_bytes(entry.bytes); }

}  // namespace

StoreCounts operator-(const StoreCounts& now, const StoreCounts& before) {
  return StoreCounts{
      now.swapped_out - before.swapped_out, now.swapped_in - before.swapped_in, now.fetched - before.fetched,
      now.cancelled - before.cancelled,     now.early - before.early,           now.died - before.died,
      now.out_bytes - before.out_bytes,     now.in_bytes - before.in_bytes};
}

// Never destroyed: storages may outlive static destructors.
Store& Store::of(c10::Device device) {
  std::atomic<Store*>& place = stores[device];
  if (Store* made = place.load(std::memory_order_acquire)) return *made;
  static std::mutex making;
  const std::lock_guard<std::mutex> held(making);
  if (place.load() == nullptr) place.store(new Store(), std::memory_order_release);
  return *place.load();
}

void Store::for_each(const std::function<void(Store&)>& visit) {
  for (size_t place = 0; place < kPlaces; ++place) {
    if (Store* made = stores.at_place(place).load(std::memory_order_acquire)) visit(*made);
  }
}

Entry* Store::entry_of(c10::StorageImpl& storage) {
  return storage._mutable_data_ptr_no_checks().cast_context<Entry>(&Store::drop);
}

const char* Store::why_it_stays(c10::StorageImpl& storage) {
  const c10::DataPtr& data = storage._mutable_data_ptr_no_checks();
  if (entry_of(storage) != nullptr) {
    return "it is swapped out already";
  }
  if (storage.nbytes() == 0 || data.get() == nullptr) {
    return "it has no data";
  }
  if (c10::impl::cow::is_cow_data_ptr(data)) {
    return "it shares its data copy-on-write";
  }
  if (storage.received_cuda()) {
    return "it belongs to another process";
  }
  Store& store = Store::of(storage.device());
  const Lock held(store.lock);
  if (store.held_.count(&storage) > 0) {
    return "somebody else knows its address";
  }
  const bool own = data.get_deleter() == c10::GetAllocator(storage.device_type())->raw_deleter();
  return own ? nullptr : "its memory is not the allocator's own";
}

void Store::hold(c10::StorageImpl& storage) {
  const Lock held(lock);
  for (auto entry = held_.begin(); entry != held_.end();) {
    entry = entry->second.storage.use_count() == 0 ? held_.erase(entry) : std::next(entry);
  }
  const auto owner = c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(&storage);
  const auto kept = held_.try_emplace(&storage, Held{c10::weak_intrusive_ptr<c10::StorageImpl>(owner)});
  ++kept.first->second.times;
}

void Store::let_go(c10::StorageImpl& storage) {
  const Lock held(lock);
  const auto kept = held_.find(&storage);
  if (kept != held_.end() && --kept->second.times == 0) held_.erase(kept);
}

void Store::see_another(c10::Stream stream) {
  const std::lock_guard<std::mutex> held(seen_mutex_);
  latest_seen_ = stream.id();
  if (std::find(seen_.begin(), seen_.end(), stream) != seen_.end()) return;
  seen_.push_back(stream);
  several_ = seen_.size() > 1;
  if (!several_) return;
  const Lanes& lanes = lanes_of(stream.device());  // nobody made it wait for what has returned before
  record_on(lanes.in)->block(stream);
  record_on(lanes.out)->block(stream);
}

std::vector<c10::Stream> Store::several() {
  if (!several_streams()) return {};
  const std::lock_guard<std::mutex> held(seen_mutex_);
  return seen_;
}

void Store::change_absent(int64_t by) {
  const int64_t before = absent_storages.fetch_add(by);
  const auto listener = listener_.load();
  if (listener != nullptr && (before == 0 || before + by == 0)) listener();
}

void Store::swap_out(c10::StorageImpl& storage, c10::Stream home, bool for_all) {
  const Lock held(lock);
  const char* reason = why_it_stays(storage);
  TORCH_CHECK(reason == nullptr, "this storage cannot be swapped out: ", reason);
  const c10::Device device = storage.device();
  const c10::Stream lane = lanes_of(device).out;
  auto entry = std::make_unique<Entry>(Entry{device, home, storage.nbytes()});
  void* address = storage._mutable_data_ptr_no_checks().get();
  entry->host = host_.acquire(entry->bytes, lane);
  try {
    entry->for_all = for_all && several_streams();
    if (entry->for_all) {
      for (const c10::Stream user : several()) record_on(user)->block(lane);
    }
    if (const auto observer = observer_.load()) observer(address, entry->bytes, lane.id());
    copy_on(lane, entry->host.bytes, bytes_at(address, entry->bytes, device));
    entry->copied_out = entry->host.copied(lane);
  } catch (...) {
    host_.give_back(std::move(entry->host));
    throw;
  }
  ++counts_.swapped_out;
  counts_.out_bytes += entry->bytes;
  if (const auto told = leaving_observer.load()) told(storage);
  Entry& kept = *entry;
  kept.block = storage.set_data_ptr(c10::DataPtr(nullptr, entry.release(), &Store::drop, device));
  forbid_reading(storage, absence_message(kept.bytes));
  change_absent(1);
}

// Told of its own stream an allocator does nothing; a block that another stream uses must wait for that one too.
void Store::drop_block(Entry& entry, c10::Stream user) {
  entry.place = Place::kAway;
  c10::impl::VirtualGuardImpl(entry.device.type()).recordDataPtrOnStream(entry.block, user);
  entry.block.clear();
  displaced_bytes[entry.device] += displaced(entry);
}

void Store::release(c10::StorageImpl& storage) {
  const Lock held(lock);
  Entry* entry = entry_of(storage);
  if (entry != nullptr && entry->place == Place::kLeaving) drop_block(*entry, entry->home);
}

void Store::leave_to_allocator(c10::StorageImpl& storage) {
  const Lock held(lock);
  Entry* entry = entry_of(storage);
  if (entry == nullptr || entry->place != Place::kLeaving) return;
  drop_block(*entry, lanes_of(entry->device).out);
}

c10::DataPtr Store::allocate(const Entry& entry) {
  const c10::OptionalStreamGuard on(entry.home);
  const Returning returning(entry.bytes);
  displaced_bytes[entry.device] -= displaced(entry);
  try {
    return c10::GetAllocator(entry.device.type())->allocate(entry.bytes);
  } catch (...) {
    displaced_bytes[entry.device] += displaced(entry);
    throw;
  }
}

void Store::swap_in(c10::StorageImpl& storage, c10::DataPtr block) {
  const Lock held(lock);
  Entry* entry = entry_of(storage);
  TORCH_CHECK(entry != nullptr && entry->place == Place::kAway, "only a storage that is on the host can be swapped in");
  const c10::Stream lane = lanes_of(entry->device).in;
  try {
    copy_on(lane, bytes_at(block.get(), entry->bytes, entry->device), entry->host.bytes);
    entry->copied_in = entry->host.copied(lane);
  } catch (...) {  // it may be queued all the same
    c10::impl::VirtualGuardImpl(entry->device.type()).recordDataPtrOnStream(block, lane);
    displaced_bytes[entry->device] += displaced(*entry);
    throw;
  }
  entry->block = std::move(block);
  entry->place = Place::kComing;
  ++counts_.swapped_in;
  counts_.in_bytes += entry->bytes;
}

// Gives the storage the entry's block; the entry dies with the data pointer that holds it.
void Store::restore(c10::StorageImpl& storage, Entry& entry) {
  host_.give_back(std::move(entry.host));
  entry.host = {};
  c10::DataPtr block = std::move(entry.block);
  entry.block.clear();  // a moved-from pointer still shows the address
  allow_reading(storage);
  storage.set_data_ptr_noswap(std::move(block));
}

void Store::recall(c10::StorageImpl& storage) {
  const Lock held(lock);
  Entry* entry = entry_of(storage);
  TORCH_CHECK(entry != nullptr && entry->place == Place::kComing,
              "only a storage on its way back can be sent away again");
  entry->copied_in->block(entry->home);
  drop_block(*entry, entry->home);
}

void Store::install(c10::StorageImpl& storage) {
  const Lock held(lock);
  Entry* entry = entry_of(storage);
  TORCH_CHECK(entry != nullptr && entry->place == Place::kComing, "only a storage that is being swapped in can arrive");
  restore(storage, *entry);
}

// Orders the users behind the last copy. A block used on another stream than its pool's is recorded there, as the
// program may have done with the block that left.
void Store::hand_back(c10::StorageImpl& storage, Entry& entry, c10::Event& copied, Users users) {
  const c10::Stream reader = current_stream(entry.device);
  copied.block(reader);
  if (entry.for_all) {
    for (const c10::Stream other : several()) copied.block(other);
  }
  if (users == Users::kAnyStream) await(copied);
  if (reader != entry.home) {
    c10::impl::VirtualGuardImpl(entry.device.type()).recordDataPtrOnStream(entry.block, reader);
  }
  restore(storage, entry);
}

Arrival Store::ensure_in(c10::StorageImpl& storage, Users users, EventPtr* copied) {
  const Lock held(lock);
  Entry* entry = entry_of(storage);
  if (entry == nullptr) {
    return Arrival::kPresent;
  }
  Arrival how = Arrival::kEarly;
  if (entry->place == Place::kLeaving) {
    ++counts_.cancelled;
    const EventPtr end = entry->copied_out;
    hand_back(storage, *entry, *end, users);  // users may write where the copy still reads
    if (copied != nullptr) *copied = end;
    return Arrival::kCancelled;
  }
  if (entry->place == Place::kAway) {
    c10::DataPtr block = allocate(*entry);
    const c10::Stream lane = lanes_of(entry->device).in;
    record_on(entry->home)->block(lane);
    entry->copied_out->block(lane);
    swap_in(storage, std::move(block));
    how = Arrival::kFetched;
  }
  ++(how == Arrival::kFetched ? counts_.fetched : counts_.early);
  const EventPtr end = entry->copied_in;
  hand_back(storage, *entry, *end, users);
  if (copied != nullptr) *copied = end;
  return how;
}

void Store::park(c10::StorageImpl& storage) {
  const Lock held(lock);
  const c10::Stream home = current_stream(storage.device());
  record_on(home)->block(lanes_of(storage.device()).out);
  swap_out(storage, home);
  entry_of(storage)->copied_out->block(home);
  release(storage);
}

// What a dead or restored storage leaves behind. A block that a copy may still touch goes back to its pool behind that
// copy: its home stream waits for it, so that the program may have the bytes at once, as a plan counts on.
void Store::settle(Entry& entry) {
  if (entry.host.bytes.defined()) {  // the storage died
    ++counts_.died;
    if (entry.place == Place::kAway) displaced_bytes[entry.device] -= displaced(entry);
    host_.give_back(std::move(entry.host));
  }
  if (entry.block.get() != nullptr) {
    const EventPtr& copied = entry.place == Place::kComing ? entry.copied_in : entry.copied_out;
    copied->block(entry.home);
    c10::impl::VirtualGuardImpl(entry.device.type()).recordDataPtrOnStream(entry.block, entry.home);
    entry.block.clear();
  }
}

void Store::drop(void* pointer) {
  if (pointer == nullptr) {
    return;
  }
  Store& store = Store::of(static_cast<Entry*>(pointer)->device);
  const Lock held(store.lock);
  const std::unique_ptr<Entry> entry(static_cast<Entry*>(pointer));
  try {
    store.settle(*entry);
    change_absent(-1);
  } catch (const std::exception& error) {  // a destructor may be running
    TORCH_WARN("freeing a storage that was swapped out failed: ", error.what());
  }
}

}  // namespace bayplan::swap

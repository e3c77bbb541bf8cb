#include "follow/relief.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <limits>
#include <thread>

#include "follow/guard.h"
#include "session/session.h"

namespace bayplan::swap {
namespace {

using Lock = std::lock_guard<std::recursive_mutex>;

constexpr uint64_t kRecent = 8;  // operators; who took a tensor's address by hand should be done with it by then
constexpr auto kPatience = std::chrono::milliseconds(1000);

// A thread inside an operator holds bare addresses, which ones only it knows. Other threads' operators are short.
bool wait_for_others() {
  const auto limit = std::chrono::steady_clock::now() + kPatience;
  while (others_compute()) {
    if (std::chrono::steady_clock::now() > limit) return false;
    std::this_thread::yield();
  }
  return true;
}

thread_local bool answering = false;

}  // namespace

bool answer_pressure(size_t /*bytes*/, size_t missing, unsigned attempt) {
  Session* session = Session::active();
  if (session == nullptr || answering) return false;
  answering = true;
  bool freed = false;
  try {
    freed = (attempt == 0 || wait_for_others()) && session->relieve(missing, attempt, pinned());
  } catch (...) {
    session->keep_error(std::current_exception());
  }
  answering = false;
  return freed;
}

// Lines 3-5 and 9-12 of Algorithm 3. Line 6, defragmenting, is the allocator's own: the simulated device has nothing to
// defragment, CUDA's has expandable segments.
bool Session::relieve(uint64_t missing, unsigned attempt, const Pins& pins) {
  const Lock held(store_.lock);
  if (attempt == 0) {
    const uint64_t released = release_leaving(missing);
    counts_.relieved += released;
    return released > 0;
  }
  const bool alone = !options_.guard && finder_ != nullptr;  // for comparison: a policy without any net under it
  if (polite_ || alone || !watching_) return false;          // while nobody watches, pins are not known
  const bool may_leave = !in_compiled_code();
  const bool freed = (may_leave && swap_passively(missing, pins, /*residents=*/false)) || recall(pins) ||
                     (may_leave && swap_passively(missing, pins, /*residents=*/true));
  if (!freed) ++counts_.failed;
  return freed;
}

// The first to leave are the first to be gone; no more of them than the request needs, since each makes the compute
// stream wait for its copy.
uint64_t Session::release_leaving(uint64_t missing) {
  uint64_t released = 0;
  for (uint64_t bytes = 0; bytes < missing && !leaving_.empty(); leaving_.pop_front()) {
    const auto storage = leaver(leaving_.front());
    if (storage == nullptr) continue;
    release_block(*storage, *Store::entry_of(*storage));
    bytes += storage->nbytes();
    ++released;
  }
  return released;
}

// What the policy brings back too early for this program goes away again, the latest first: its host copy is whole.
bool Session::recall(const Pins& pins) {
  for (auto weak = coming_.rbegin(); weak != coming_.rend(); ++weak) {
    const auto storage = weak->lock();
    Entry* entry = storage == nullptr ? nullptr : Store::entry_of(*storage);
    if (entry == nullptr || entry->place != Place::kComing) continue;
    if (std::find(pins.begin(), pins.end(), storage.get()) != pins.end()) continue;
    const EngineWork work = measured();
    store_.recall(*storage);
    coming_.erase(std::next(weak).base());
    ++counts_.recalled;
    return true;
  }
  return false;
}

// What was used just now stays, if anything else can leave.
bool Session::swap_passively(uint64_t missing, const Pins& pins, bool residents) {
  const uint64_t old = now_ > kRecent ? now_ - kRecent : 0;
  for (const uint64_t newest : {old, std::numeric_limits<uint64_t>::max()}) {
    const auto storage = choose(missing, pins, newest, residents);
    if (storage == nullptr) continue;
    const EngineWork work = measured();
    record_on(*compute_)->block(lanes_of(device_).out);  // whoever asks may work on another stream
    leave_behind_touches(*storage);
    store_.park(*storage);
    ++counts_.passive;
    counts_.passive_bytes += storage->nbytes();
    return true;
  }
  return false;
}

// The one whose size is closest to what is missing, all that are enough and at most twice that counting as equal; among
// equals the one that was not used for longest: activations that wait longest for the backward pass, in either pass.
// Nothing that an operator which runs now may hold the address of: its arguments (pinned), and what it made itself.
c10::intrusive_ptr<c10::StorageImpl> Session::choose(uint64_t missing, const Pins& pins, uint64_t newest,
                                                     bool residents) const {
  const auto distance = [missing](uint64_t bytes) {
    if (bytes < missing) return missing - bytes;
    return bytes / 2 <= missing ? 0 : bytes - missing;
  };
  const Tracked* best = nullptr;
  std::pair<uint64_t, uint64_t> least;
  for (const auto& [address, tracked] : tracker_) {
    if (tracked.resident != residents || stays(tracked) || tracked.last_use > newest) continue;
    if (frame_ != nullptr && tracked.first_use >= began_) continue;
    if (tracked.storage.use_count() == 0 || address->device() != device_) continue;
    if (Store::why_it_stays(*address) != nullptr) continue;
    if (std::find(pins.begin(), pins.end(), address) != pins.end()) continue;
    const std::pair<uint64_t, uint64_t> order{distance(address->nbytes()), tracked.last_use};
    if (best != nullptr && order >= least) continue;
    best = &tracked;
    least = order;
  }
  return best == nullptr ? c10::intrusive_ptr<c10::StorageImpl>() : best->storage.lock();
}

// The limit stands already, so that nobody takes what this frees. Other threads know their addresses; if they do not
// come to an end, nothing leaves, and later requests for memory ask again.
Descent Session::come_down() {
  const auto in_use = [this] { return static_cast<uint64_t>(allocated().current); };
  const bool alone = wait_for_others();
  const Lock held(store_.lock);
  Descent done{in_use(), 0, 0};
  done.after_bytes = done.before_bytes;
  if (!budget_.has_value() || done.before_bytes <= *budget_) return done;
  try {
    while (alone && in_use() > *budget_) {
      const uint64_t missing = in_use() - *budget_;
      if (!swap_passively(missing, pinned(), /*residents=*/false) &&
          !swap_passively(missing, pinned(), /*residents=*/true)) {
        break;
      }
      ++done.storages;
    }
  } catch (const HostMemoryShort&) {
    keep_error(std::current_exception());
  }
  done.after_bytes = in_use();
  if (done.after_bytes <= *budget_) c10::getDeviceAllocator(device_.type())->resetPeakStats(device_.index());
  return done;
}

// What the allocator lacks, where it does not say: room for the largest storage that was seen.
uint64_t Session::shortage() const {
  if (!budget_.has_value()) return 0;
  uint64_t largest = 0;
  for (const auto& [address, tracked] : tracker_) {
    if (tracked.storage.use_count() > 0) largest = std::max<uint64_t>(largest, address->nbytes());
  }
  const auto used = static_cast<uint64_t>(allocated().current);
  return used + largest > *budget_ ? used + largest - *budget_ : 0;
}

}  // namespace bayplan::swap

// What the policy says: tensors that leave after the operator that they are sighted at, blocks that are released and
// tensors that return before others. And what is on its way because of that.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "session/policy.h"
#include "session/state.h"
#include "session/streams.h"

namespace bayplan::swap {

class Transfers {
 public:
  Transfers(SessionState& state, Streams& streams) : state_(state), streams_(streams) {}

  // Nothing, and nothing leaves but for lack of memory.
  void set_policy(std::optional<Policy> policy);
  bool has_policy() const { return finder_ != nullptr; }
  // Whether the policy wants storages that no operator has used yet.
  bool needs_results() const { return finder_ != nullptr && finder_->needs_results(); }
  // The next iteration begins.
  void restart();
  // The session stops: what is on its way is somebody else's business.
  void forget();
  // Targets that were not sighted in this iteration.
  uint64_t unmatched() const { return flights_.size() - state_.counts.matched; }

  // What stands before an operator, which begins.
  void act_before(const Anchor& anchor, const at::RecordFunction& frame);
  // A storage is sighted: it leaves at the operator's end if the policy wants it.
  void sighted(const c10::Storage& storage, uint64_t key, uint32_t op, uint32_t position);
  // The operator ends.
  void act_after();
  // The operator never ended.
  void forget_sighted() { leaving_now_.clear(); }
  // Sends away the first that waits for the host's reads and for which `may_leave` answers, block and all; whether
  // there was one.
  bool hurry(const std::function<bool(const Tracked&, c10::StorageImpl&)>& may_leave);

  // Whether the storage is out because the policy sent it away in this iteration.
  bool sent_away(const Entry& entry) const;

  // Releases the blocks of storages that are leaving, until that many bytes are; how many blocks.
  uint64_t release_leaving(uint64_t missing = std::numeric_limits<uint64_t>::max());
  // Releases the block of a storage that is leaving, whose copy the compute stream waits for.
  void release_block(c10::StorageImpl& storage);
  // Undoes the latest planned swap-in that is under way and no operator of the thread uses; whether there was one.
  bool recall(const Pins& pins);
  // Whether a planned swap-in asks for memory: nothing else leaves for it.
  bool may_wait() const { return may_wait_; }

 private:
  struct Flight {  // of a target, in this iteration
    std::optional<WeakStorage> storage;
    EventPtr copied_out;
    bool spared = false;    // the iteration is too small for it to leave
    bool waits = false;     // for the host's reads, before it leaves
    bool released = false;  // the policy's release has come while it waited
  };
  struct Leaving {  // a storage whose block is not released yet, in the order of the copies
    WeakStorage storage;
    EventPtr copied_out;
    bool due = false;  // the policy's release has come, but the copy was not done
  };
  using Incoming = std::pair<StoragePtr, c10::DataPtr>;

  // The target's storage if it is out because this iteration's swap-out of the target sent it out, and has got there.
  StoragePtr flying(uint32_t target, Place place) const;
  // The storage if its block is still to be released. Another thread may drop the last reference at any time, so
  // whoever looks keeps one.
  StoragePtr still_leaving(const Leaving& leaving) const;
  std::optional<WeakStorage> known(uintptr_t storage) const;
  void leave_unseen(const std::vector<uint32_t>& targets);
  void match(uint32_t target, StoragePtr storage);
  void release(const std::vector<uint32_t>& targets);
  void release_due();
  void swap_in(const std::vector<uint32_t>& targets);
  std::optional<Incoming> allocate(StoragePtr storage);
  void arrive(uint32_t op);
  void swap_out(uint32_t target, const StoragePtr& storage);
  void let_leave();
  void forget_flights();

  SessionState& state_;
  Streams& streams_;
  std::unique_ptr<Finder> finder_;
  std::vector<std::pair<uint32_t, StoragePtr>> leaving_now_;  // targets, at the end of the operator
  std::vector<Flight> flights_;                               // by target
  std::deque<std::pair<uint32_t, WeakStorage>> waiting_;      // targets that may leave, in their order
  std::vector<std::optional<WeakStorage>> held_;              // by target: those that are told by their storage
  Gaps gaps_;
  uint32_t next_place_ = 0;  // of the operator after the one that runs, as the policy counts
  std::deque<Leaving> leaving_;
  std::vector<WeakStorage> coming_;  // planned swap-ins, in the order of issue
  bool may_wait_ = false;
};

}  // namespace bayplan::swap

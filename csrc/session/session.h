// Keeps a training loop within its memory while it runs, iteration after iteration: follows the operators, sends
// tensors away and back where the policy says so (transfers.h), brings back on demand what an operator touches
// (streams.h), and answers requests for memory that do not fit (passive.h; SmartSwap, Algorithm 3). The session decides
// nothing: the policy is given, and one that fits the program badly costs time only.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "follow/follower.h"
#include "follow/frames.h"
#include "session/grounds.h"
#include "session/iteration.h"
#include "session/needs.h"
#include "session/passive.h"
#include "session/policy.h"
#include "session/sightings.h"
#include "session/small_requests.h"
#include "session/state.h"
#include "session/streams.h"
#include "session/transfers.h"

namespace bayplan::swap {

// What found no memory on the device when a session ended.
struct LeftOut {
  uint64_t bytes = 0;
  uint64_t storages = 0;
};

constexpr uint64_t kFewSegments = uint64_t{64} << 20;  // of an arena that is worth less than an error

// Of the latest frame.
Arguments arguments_of(const OpenFrames& own);

class Session final : public Follower {
 public:
  Session(c10::Device device, SessionOptions options);
  ~Session() override;

  // The calling thread becomes the training thread, its current stream the compute stream. A session that is active
  // already rests until this one stops.
  void start();
  // Brings back what is out and ends following. What finds no memory, which it answers, comes back when it is used.
  LeftOut stop();

  // Storages that are there already.
  void add_resident(const std::vector<at::Tensor>& tensors);
  // Ends the iteration and begins the next, on the calling thread.
  Iteration end_iteration();
  // Whether the rest of the iteration that runs lists its sightings.
  void record_sightings(bool on);
  void set_policy(std::optional<Policy> policy);
  void set_ranks(const std::vector<uint32_t>& by_frequency);
  // Whether the calling thread runs an optimizer's step.
  void set_optimizer(bool runs);
  // Bytes that the allocator may hold: where it does not say how much it lacks (follow/relief.h).
  void set_budget(std::optional<uint64_t> bytes) {
    budget_ = bytes;
    small_.set_limit(bytes);
  }
  // How the allocator takes memory from the driver: by exact bytes, as it does at first; in segments, which it cuts for
  // requests of any size or not; or in pages of ranges of addresses that grow (`expandable_segments`).
  void set_segments(Segments segments, bool cuts) {
    grounds_.set_segments(segments, cuts);
    small_.set_fixed(segments == Segments::kFixed);
    protect(true);
  }
  // Before the next operator the arena is looked at, and made anew if it is worth it.
  void renew_arena() { grounds_.ask(); }
  // Called where an operator ran out of memory and may run again, with no lock held: may set another budget.
  void set_more(std::function<void()> more) { more_ = std::move(more); }
  // What the allocator has for requests above 1 MiB where there is an arena, else 0.
  uint64_t pool_bytes() const { return grounds_.pool_bytes(); }
  // The most that it has held for the others.
  uint64_t small_peak_bytes() { return grounds_.small_peak_bytes(); }
  // Whether there were no others when the arena was last looked at.
  bool only_small() const { return grounds_.only_small(); }
  // What the allocator would have to hold for the latest request that nothing could be freed for, at least; 0: there
  // was none.
  uint64_t least_bytes() const { return least_bytes_; }
  // The same where that request is known to be of so many bytes.
  uint64_t least_bytes_for(uint64_t bytes) const;
  // The latest request that the allocator had no block for, in words: who asked, what was expected, and what was free.
  std::string latest_request() const;
  // If more than the budget is in use: sends away what was there before, until it is not or nothing more may leave. The
  // peak counts anew if it succeeded.
  Descent come_down();
  // Marks operators and the engine's own work until the iteration ends.
  void measure_swapping();
  // Whether operators are followed at all while nothing is out.
  void set_watching(bool on);
  bool backward_seen() const { return state_.iteration.backward; }
  uint64_t tracked() const { return state_.tracker.size(); }

  bool begin_frame(const at::RecordFunction& frame) override;
  void end_frame(const at::RecordFunction& frame) override;
  // Once other streams work, too: what they make leaves behind them.
  bool needs_results() const override { return sights_results() || streams_.seen_elsewhere(); }
  void end_elsewhere(Touch& touch, const std::vector<WeakStorage>& made) override;
  bool make_place_again(const c10::OperatorName& name) override;
  void demand(c10::StorageImpl& storage) override;
  void hold(c10::StorageImpl& storage) override;
  bool relieve(uint64_t missing, unsigned attempt, const Pins& pins) override;
  uint64_t shortage(unsigned requests) const override;
  uint64_t shortage_without_cache(unsigned requests) override;
  uint64_t largest_bytes() const override { return passive_.largest_bytes(); }
  uint64_t leaving_bytes() const override;
  void begin_request() override;
  void end_request() override;

 private:
  // What was known of a request when it came.
  struct Asked {
    const OperatorInfo* info = nullptr;
    uint64_t iteration = 0;
    uint64_t given = 0;     // bytes of the operator's arguments
    uint64_t expected = 0;  // what its next request was expected to be for; 0: not known
    uint64_t had = 0;       // requests of the operator that were seen before
    uint64_t gap = 0;       // the largest free range of the arena
    uint64_t reserved = 0, active = 0, small_reserved = 0, small_active = 0;
    unsigned answers = 0;  // times that something left for it
  };
  void note_request(uint64_t expected, uint64_t had, const Layout& layout);
  // What the allocator takes from the driver for a request.
  uint64_t room_for(uint64_t bytes) const;
  uint64_t most_needed() const;
  void note_refused(const Pins& pins);
  uint64_t least_with(uint64_t bytes) const;
  uint64_t shortage_in_arena(unsigned requests) const;
  bool relieve_one(uint64_t missing, unsigned attempt, const Pins& pins);
  void renew_arena_if_due(const OpenFrames& own);
  void mend_arena(const OpenFrames& own);
  // Whether room is made for operators before they begin: an allocator with an arena asks only where there is none.
  bool looks_ahead() const { return (knows_places() || in_segments() || lost_arena()) && short_; }
  // The same where nothing is known of operators, nor is memory page-locked.
  bool begins() const { return (knows_places() || in_segments()) && state_.iterations == 1; }
  // Whether what counts is where blocks lie: in the arena, or in segments for small requests alone.
  bool grows_by_pages() const;
  bool fills_small() const;
  bool knows_places() const { return state_.arena.there() || grounds_.only_small() || grounds_.lent(); }
  // Whether the arena went back to the driver, and was not had again.
  bool lost_arena() const { return !knows_places() && !streams_.seen_elsewhere() && grounds_.had(); }
  // Whether the allocator takes segments as it likes: other streams ask for some, too.
  bool in_segments() const {
    return !knows_places() && streams_.seen_elsewhere() && budget_.has_value() &&
           grounds_.segments() != Segments::kNone;
  }
  // The operator has all its arguments.
  void make_room_for_operator(const at::RecordFunction& frame, OpenFrames& own);
  void make_room_for_large(const std::vector<OperatorNeeds::Way>& ways, const OpenFrames& own);
  void make_room_for(uint64_t need, const OpenFrames& own);
  void make_room_in_segments(const std::vector<OperatorNeeds::Way>& ways, const OpenFrames& own);
  uint64_t large_need(const std::vector<OperatorNeeds::Way>& ways) const;
  void take_arena(const OpenFrames& own);
  void widen_arena(uint64_t bytes, const OpenFrames& own);
  uint64_t expected_need() const;
  uint64_t told_by_place() const;
  bool arena_may_change();  // nobody else works on the device
  // Whether others' operators ran beside this iteration's or the last one's: requests may find others inside.
  bool is_shared() const { return state_.iterations <= shared_ + 1; }
  void make_room_for_small(const std::vector<OperatorNeeds::Way>& ways, const OpenFrames& own);
  static uint64_t distinct_bytes(const Pins& all, size_t first, bool large_only = false);
  static uint64_t large_peak(const OperatorNeeds::Way& way);
  bool make_place_for(const std::vector<OperatorNeeds::Way>& ways, size_t first, bool small);
  void make_place_before(const std::vector<OperatorNeeds::Way>& ways, const OpenFrames& own);
  // Whether operators of this thread run again where they find no memory.
  void protect(bool on);
  void learn_needs();
  void make_room_for_arguments(const at::RecordFunction& frame, const OpenFrames& own);
  bool lacks_room_for_absent(const OpenFrames& own);
  void take_back_arena(const OpenFrames& own);
  bool may_lend(uint32_t id, const Arguments& given, const OpenFrames& own);
  bool wants_arena(uint32_t id, const Arguments& given, const OpenFrames& own) const;
  void learn_retry();
  bool empty_arena(const Pins& pins);
  bool empty_small(const Pins& pins);
  // Where the operator that runs has blocks, during a request.
  void note_blocks(const Requests& own);
  uint64_t given_out() const { return static_cast<uint64_t>(memory().allocated_bytes[kAllPools].allocated); }
  using StoreLock = std::unique_lock<StoreMutex>;

  // While memory is short, too: what only operators inside others make is else unknown to passive swapping. And where
  // gradients stay: what the forward pass made, and nobody saw, would be taken for one when the backward pass uses it.
  bool sights_results() const {
    return sightings_.recording() || short_ || transfers_.needs_results() || streams_.graph_elsewhere();
  }
  // Who runs the operator that begins on the calling thread.
  Phase phase() const;
  Anchor next_anchor(uint32_t id);
  void begin_iteration();

  bool follow(const at::RecordFunction& frame, ThreadPlace& thread, OpenFrames& own, StoreLock& held);
  bool held_up(const at::RecordFunction& frame, const StoreLock& held);
  bool goes_on_alone(const at::RecordFunction& frame, const ThreadPlace& thread, OpenFrames& own, StoreLock& held);
  void follow_elsewhere(const at::RecordFunction& frame, OpenFrames& own);
  bool meets_elsewhere();
  void on_operator(const at::RecordFunction& frame, const OperatorInfo& info);
  void on_operator_end(const at::RecordFunction& frame);
  void on_nested_end(const at::RecordFunction& frame);
  void on_foreign_operator(const at::RecordFunction& frame);

  SessionState state_;
  Streams streams_;
  Transfers transfers_;
  Sightings sightings_;
  PassiveSwaps passive_;
  SmallRequests small_;
  bool short_ = true;                   // memory was short in some iteration, or it is the first
  bool ever_short_ = false;             // memory was short in some iteration
  uint64_t epoch_ = 0;                  // tells this iteration from all others, of other sessions too
  std::atomic<bool> read_seen_{false};  // the host waits for the device in the operator that runs
  std::optional<uint64_t> budget_;
  std::function<void()> more_ = [] {};
  Grounds grounds_;
  OperatorNeeds needs_;
  PlaceNeeds place_needs_;
  std::vector<uint64_t> given_bytes_ = {};  // of each argument of the operator that runs
  PoolBytes kept_ = {};                     // by what could not have left when a request was refused
  uint64_t least_bytes_ = 0;
  uint64_t most_needed_ = 0;    // by an operator that has run, with its arguments
  uint64_t between_bytes_ = 0;  // free, on pages that blocks in use kept when the cache was last emptied
  uint64_t asked_ = 0;          // bytes of a block that the allocator does not have, at least
  Asked latest_ = {};
  std::chrono::steady_clock::time_point waits_again_{};  // until then for no other threads before an operator
  uint64_t protected_ = 0;                               // operators up to this one do not run again
  uint64_t again_number_ = 0;                            // the operator that ran again last,
  size_t again_seen_ = 0;                                // and what it had asked for when it found no memory
  uint64_t shared_ = 0;                                  // the last iteration beside whose operators other threads' ran
  bool asked_in_operator_ = false;                       // the operator that runs had a request without a block,
  uint64_t retries_before_ = 0;                          // and the allocator's retries before the first one
  uint64_t retries_ = 0;                                 // of the allocator, when the iteration began
  std::vector<uint32_t> counted_[kPhases];               // operators of this iteration, by phase and id
};

}  // namespace bayplan::swap

// Keeps a training loop within its memory while it runs, iteration after iteration: follows the operators, sends
// tensors away and back where the policy says so, brings back on demand what an operator touches, and answers requests
// for memory that do not fit (relief.cpp; SmartSwap, Algorithm 3). The session decides nothing: the policy is given,
// and one that fits the program badly costs time only.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>

#include <atomic>
#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "follow/tracker.h"
#include "profiler/operators.h"
#include "session/policy.h"
#include "session/timeline.h"
#include "storage/store.h"

namespace bayplan::swap {

// When the block of a storage that leaves may be used again.
enum class RecordStream : uint8_t {
  kCustom,   // at the policy's release if the copy is done, else when memory is needed, behind an event
  kPrinted,  // at the policy's release in any case, behind an event: SmartSwap §6.2
  kTorch,    // when PyTorch's allocator finds the copy done: `record_stream`
};

struct SessionOptions {
  uint64_t least_bytes = 4096;  // smaller storages are not looked at
  Matching matching = Matching::kFeatures;
  bool guard = true;  // bring back what an operator touches, swap passively; without it a policy is on its own
  RecordStream record_stream = RecordStream::kCustom;
};

// A storage seen at an operator, in a way that finds it again in a later iteration.
struct Sighting {
  uint32_t op;
  uint32_t position;  // how-manieth sighting at that operator
  uintptr_t storage;  // address of its StorageImpl
  uint64_t key;
  uint32_t ordinal;
  bool result;  // no operator has used it yet in this iteration
};

struct SessionCounts {
  uint64_t matched = 0;        // targets that were sighted
  uint64_t refused = 0;        // of these, that could not leave
  uint64_t kept = 0;           // planned swap-ins of what had not been released, as nobody needed its memory
  uint64_t in_time = 0;        // used when their planned swap-in was on its way or done
  uint64_t postponed = 0;      // planned swap-ins that found no memory
  uint64_t missed_events = 0;  // targets of events whose storage was not where the event supposes it
  uint64_t passive = 0;        // storages swapped out because memory was short
  uint64_t passive_bytes = 0;
  uint64_t relieved = 0;  // blocks released because memory was short
  uint64_t recalled = 0;  // planned swap-ins undone because memory was short
  uint64_t failed = 0;    // requests that nothing could relieve
  StoreCounts store;      // `early` are counted as `in_time`
};

// How a session that found more memory in use than its budget came down.
struct Descent {
  uint64_t before_bytes;  // in use
  uint64_t after_bytes;
  uint64_t storages;  // that were swapped out
};

// An iteration's time on the device, and where it went if that was measured.
struct IterationClock {
  EventPtr begin, end;
  std::shared_ptr<Timeline> timeline;
};

struct Iteration {
  std::vector<uint32_t> operators;
  std::vector<Phase> phases;
  std::vector<Sighting> sightings;
  SessionCounts counts;
  uint64_t unmatched = 0;
  uint64_t peak_bytes = 0;  // on the device, since the session began
  uint64_t host_peak_bytes = 0;
  bool backward = false;
  uint64_t forward_bytes = 0;  // of what each operator of the forward pass uses, summed; older storages excepted
  IterationClock clock;
};

// Storages that operators of the calling thread are using now.
using Pins = std::vector<c10::StorageImpl*>;

class Session {
 public:
  Session(c10::Device device, SessionOptions options);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // The session that is followed now, or null.
  static Session* active();

  // The calling thread becomes the training thread, its current stream the compute stream. A session that is active
  // already rests until this one stops.
  void start();
  // Brings back what is out and ends following. What finds no memory comes back when it is used.
  void stop();
  bool is_active() const { return active() == this; }

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
  // Bytes that the allocator may hold: where it does not say how much it lacks (relief.h).
  void set_budget(std::optional<uint64_t> bytes) { budget_ = bytes; }
  // If more than the budget is in use: sends away what was there before, until it is not or nothing more may leave. The
  // peak counts anew if it succeeded.
  Descent come_down();
  // Marks operators and the engine's own work until the iteration ends.
  void measure_swapping();
  // Whether operators are followed at all while nothing is out.
  void set_watching(bool on);
  bool backward_seen() const { return iteration_.backward; }
  bool watching() const { return watching_; }
  // While memory is short too: what only operators inside others make is else unknown to passive swapping.
  bool sights_results() const { return recording_ || short_ || (finder_ != nullptr && finder_->needs_results()); }
  // And once other streams work: what they make leaves behind them.
  bool needs_results() const { return sights_results() || elsewhere_seen_; }
  c10::Device device() const { return device_; }
  uint64_t tracked() const { return tracker_.size(); }

  // The first error since the last call, rethrown.
  void raise_error();
  void keep_error(std::exception_ptr error);

  // Called by the guard. `on_operator` at the begin of a counted operator of the session's threads,
  // `on_foreign_operator` of another thread's: both while the guard holds the store.
  bool owns_thread() const;
  void on_operator(const at::RecordFunction& frame, const OperatorInfo& info);
  void on_operator_end(const at::RecordFunction& frame);
  void on_nested_end(const at::RecordFunction& frame);
  void on_foreign_operator(const at::RecordFunction& frame);
  void demand(c10::StorageImpl& storage);
  // Whether the calling thread works on another stream than the compute stream; asked without the store.
  bool is_elsewhere() const { return current_stream(device_).id() != compute_id_.load(std::memory_order_relaxed); }
  // An operator begins that works elsewhere with the storages from `first` on: they are there for it, and leave behind
  // it. Until its kernels are queued the caller keeps the touch.
  TouchPtr on_elsewhere(const Pins& storages, size_t first, bool differentiable);
  // Its kernels are queued; these are storages that it has made.
  void on_elsewhere_end(Touch& touch, const std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>>& made);
  // Whether operators that began before this are not going to tell what they make.
  bool meets_elsewhere();
  // The program says that a stream uses a storage: `record_stream`.
  void on_record_stream(const at::RecordFunction& frame);

  // Somebody knows the storage's address: it stays until the iteration ends.
  void hold(c10::StorageImpl& storage);

  // Answers a request for memory that lacks so many bytes; whether anything was freed.
  bool relieve(uint64_t missing, unsigned attempt, const Pins& pins);
  uint64_t shortage() const;

 private:
  struct Flight {  // of a target, in this iteration
    std::optional<c10::weak_intrusive_ptr<c10::StorageImpl>> storage;
    EventPtr copied_out;
  };
  struct Leaving {  // a storage whose block is not released yet, in the order of the copies
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    EventPtr copied_out;
    bool due = false;  // the policy's release has come, but the copy was not done
  };
  using Found = std::pair<uint32_t, c10::intrusive_ptr<c10::StorageImpl>>;

  Phase phase() const;
  Anchor next_anchor(uint32_t id);
  void set_compute(c10::Stream stream);
  // Autograd hands gradients from stream to stream past all operators, and reads their storages then.
  void keep_gradient(Tracked& tracked) {
    if (graph_elsewhere_ && in_pass_ && tracked.first_use >= pass_began_) tracked.held = iterations_;
  }
  const TouchPtr& open_touch(c10::Stream stream);
  void touch(Tracked& tracked, c10::Stream stream);
  void close_touches();
  // A storage that leaves is copied behind what other streams hold of it.
  void leave_behind_touches(c10::StorageImpl& storage);
  // Lets the current stream wait for the copy that brought a storage back.
  void await_copy(c10::StorageImpl& storage, const Tracked& tracked);
  void bring_back(c10::StorageImpl& storage);
  void came_back(c10::StorageImpl& storage, EventPtr copied);
  // Makes the host wait for all copies, as streams will work unseen.
  void settle_copies();
  void act_before(const Anchor& anchor);
  void release(const std::vector<uint32_t>& targets);
  void swap_in(const std::vector<uint32_t>& targets);
  void arrive(uint32_t op);
  void sight_arguments(const at::RecordFunction& frame, const OperatorInfo& info);
  void sight_result(const at::Tensor& tensor);
  void note(const c10::Storage& storage, uint64_t key, bool result);
  Tracked& refreshed(const c10::Storage& storage);
  void swap_out(const Found& found);
  c10::intrusive_ptr<c10::StorageImpl> flying(uint32_t target, Place place) const;
  bool in_flight(const Entry& entry) const;
  void release_block(c10::StorageImpl& storage, Entry& entry);
  // The storage if its block is still to be released.
  c10::intrusive_ptr<c10::StorageImpl> leaver(const Leaving& leaving) const;
  void release_due();
  uint64_t release_leaving(uint64_t missing);  // how many blocks
  bool recall(const Pins& pins);
  EngineWork measured() { return EngineWork(iteration_.clock.timeline.get(), *compute_); }
  bool stays(const Tracked& tracked) const { return tracked.barred || tracked.held >= iterations_; }
  bool swap_passively(uint64_t missing, const Pins& pins, bool residents);
  c10::intrusive_ptr<c10::StorageImpl> choose(uint64_t missing, const Pins& pins, uint64_t newest,
                                              bool residents) const;
  void forget_flights();
  c10::CachingAllocator::Stat allocated() const;

  const c10::Device device_;
  const SessionOptions options_;
  Store& store_;
  Tracker tracker_;
  Ranks ranks_;
  std::unique_ptr<Finder> finder_;
  std::thread::id thread_;
  std::optional<c10::Stream> compute_;
  std::atomic<c10::StreamId> compute_id_{0};
  bool elsewhere_seen_ = false;         // somebody worked on another stream than the compute stream
  bool graph_elsewhere_ = false;        // and autograd will work there too
  bool in_pass_ = false;                // the latest operator ran in a backward pass,
  uint64_t pass_began_ = 0;             // which began with that operator
  bool any_copied_ = false;             // some storage came back, and the host did not wait for it
  std::vector<TouchPtr> open_touches_;  // one for each stream
  bool watching_ = true;
  bool recording_ = false;
  bool short_ = true;        // memory was short in some iteration, or it is the first
  bool ever_short_ = false;  // memory was short in some iteration
  uint64_t epoch_ = 0;       // tells this iteration from all others, of other sessions too
  bool waiting_ = false;     // a measured wait is open
  bool polite_ = false;      // a swap-in of the policy asks for memory: nothing else leaves for it
  std::optional<uint64_t> budget_;

  uint64_t now_ = 0;    // operators since the session began
  uint64_t began_ = 0;  // the number of the counted operator that runs
  uint64_t iterations_ = 1;
  const at::RecordFunction* frame_ = nullptr;  // the counted operator that runs
  const OperatorInfo* info_ = nullptr;
  Phase phase_ = Phase::kForward;
  uint32_t position_ = 0;
  std::vector<Found> leaving_now_;  // at the end of the operator
  std::vector<uint32_t> counted_[kPhases];
  ska::flat_hash_map<uint64_t, uint32_t> seen_;  // by key, while sightings are recorded
  std::vector<Flight> flights_;
  std::deque<Leaving> leaving_;
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> coming_;  // planned swap-ins, in the order of issue
  Iteration iteration_;
  SessionCounts counts_;
  StoreCounts store_before_;
  std::exception_ptr error_;
};

}  // namespace bayplan::swap

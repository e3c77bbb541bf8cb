// Keeps a training loop within its memory while it runs, iteration after iteration: follows the operators, sends
// tensors away and back where the policy says so (transfers.h), brings back on demand what an operator touches
// (streams.h), and answers requests for memory that do not fit (passive.h; SmartSwap, Algorithm 3). The session decides
// nothing: the policy is given, and one that fits the program badly costs time only.
#pragma once

#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "follow/follower.h"
#include "follow/frames.h"
#include "session/iteration.h"
#include "session/passive.h"
#include "session/policy.h"
#include "session/sightings.h"
#include "session/state.h"
#include "session/streams.h"
#include "session/transfers.h"

namespace bayplan::swap {

class Session final : public Follower {
 public:
  Session(c10::Device device, SessionOptions options);
  ~Session() override;

  // The calling thread becomes the training thread, its current stream the compute stream. A session that is active
  // already rests until this one stops.
  void start();
  // Brings back what is out and ends following. What finds no memory comes back when it is used.
  void stop();

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
  void set_budget(std::optional<uint64_t> bytes) { budget_ = bytes; }
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
  void demand(c10::StorageImpl& storage) override;
  void hold(c10::StorageImpl& storage) override;
  bool relieve(uint64_t missing, unsigned attempt, const Pins& pins) override;
  uint64_t shortage() const override;

 private:
  using StoreLock = std::unique_lock<std::recursive_mutex>;

  // While memory is short, too: what only operators inside others make is else unknown to passive swapping.
  bool sights_results() const { return sightings_.recording() || short_ || transfers_.needs_results(); }
  // The thread that trains, and the autograd threads that work for somebody: a data loader's is neither.
  bool owns_thread() const;
  // Who runs the operator that begins on the calling thread.
  Phase phase() const;
  Anchor next_anchor(uint32_t id);
  void begin_iteration();

  bool follow(const at::RecordFunction& frame, ThreadPlace& thread, OpenFrames& own, StoreLock& held);
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
  std::thread::id thread_;
  bool short_ = true;        // memory was short in some iteration, or it is the first
  bool ever_short_ = false;  // memory was short in some iteration
  uint64_t epoch_ = 0;       // tells this iteration from all others, of other sessions too
  std::optional<uint64_t> budget_;
  std::vector<uint32_t> counted_[kPhases];  // operators of this iteration, by phase and id
};

}  // namespace bayplan::swap

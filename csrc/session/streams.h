// What comes back, and which streams wait for it. The host waits for no copy: the compute stream waits for what is
// brought back, whoever asked, and another stream waits when an operator of its own uses it. What another stream has
// used leaves behind that.
#pragma once

#include <utility>
#include <vector>

#include "session/state.h"

namespace bayplan::swap {

class Streams {
 public:
  explicit Streams(SessionState& state) : state_(state) {}

  // The training goes on on that stream, behind all copies; what leaves is copied behind what the one before did.
  void move_to(c10::Stream compute);

  // ---- coming back
  void bring_back(c10::StorageImpl& storage);
  void came_back(c10::StorageImpl& storage, EventPtr copied);
  // Makes the host wait for all copies, as streams will work unseen.
  void settle_copies();

  // ---- operators on other streams
  // Whether somebody works on another stream than the compute stream.
  bool seen_elsewhere() const { return elsewhere_seen_; }
  void see_elsewhere() { elsewhere_seen_ = ever_seen_ = true; }
  // Nobody has for an iteration: who begins to again is seen as the first one was.
  void forget_elsewhere() { elsewhere_seen_ = false; }
  // The same of this iteration or the one before.
  bool lately_elsewhere() const { return elsewhere_seen_ && last_elsewhere_ + 1 >= state_.iterations; }
  // An operator begins that works elsewhere with the storages from `first` on: they are there for it, and leave behind
  // it. Until its kernels are queued the caller keeps the touch.
  TouchPtr begin_elsewhere(const Pins& storages, size_t first, bool differentiable);
  // Its kernels are queued; these are storages that it has made.
  void end_elsewhere(Touch& done, const std::vector<WeakStorage>& made);
  // The program says that a stream uses a storage: `record_stream`.
  void record_stream(const at::RecordFunction& frame);
  // The calling thread's stream has made a storage.
  void touch_if_elsewhere(Tracked& tracked);
  // Somebody knows the storage's address, and may use it on any stream.
  void hold(c10::StorageImpl& storage);

  // ---- gradients
  // Whether autograd works on other streams, too.
  bool graph_elsewhere() const { return graph_elsewhere_; }
  // Whether the next operator is one of a backward pass.
  void note_pass(bool in_backward);
  // Autograd hands gradients from stream to stream past all operators, and reads their storages then.
  void keep_gradient(Tracked& tracked) const {
    if (graph_elsewhere_ && in_pass_ && tracked.first_use >= pass_began_) tracked.held = state_.iterations;
  }

  // ---- leaving
  // A storage that leaves is copied behind what the compute stream has and what other streams hold of it.
  void leave_behind(c10::StorageImpl& storage);
  void close_touches();
  void forget_touches() { open_touches_.clear(); }

 private:
  // Lets the current stream wait for the copy that brought a storage back.
  void await_copy(c10::StorageImpl& storage, const Tracked& tracked);
  const TouchPtr& open_touch(c10::Stream stream);
  void touch(Tracked& tracked, c10::Stream stream);

  SessionState& state_;
  bool elsewhere_seen_ = false;
  bool ever_seen_ = false;              // what works with an address that it was given need not be an operator
  uint64_t last_elsewhere_ = 0;         // iteration
  bool graph_elsewhere_ = false;        // and autograd will work there too
  bool in_pass_ = false;                // the latest operator ran in a backward pass,
  uint64_t pass_began_ = 0;             // which began with that operator
  bool any_copied_ = false;             // some storage came back, and the host did not wait for it
  std::vector<TouchPtr> open_touches_;  // one for each stream
};

}  // namespace bayplan::swap

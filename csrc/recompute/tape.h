// A tape below autograd: the operators that a region of a forward pass ran, what autograd saved of their results, and
// how to have a discarded result again. One file: the counts of who needs what, which every part of it keeps.
//
// *Node*: an operator that made or wrote a storage, with its arguments. *Value*: the content of a storage that the
// region made, from one operator that wrote it until the next. A value is *present* (the tape holds its storage) or
// absent; *needed* while autograd has saved a tensor of it, or a node that must run again reads it. A node *wants* its
// arguments while one of its values is needed and absent. All is counted: what nobody needs goes.
//
// Running a node again gives the same bits: the same kernel on the same arguments, below autograd and autocast, with
// the random numbers that it drew. What the tape cannot tell apart from a writer that it did not see, it stores.
//
// A tape's lock is its own (lock.h): unpacking, replaying and whatever Python asks hold it. Recording does not: a tape
// that records is its thread's alone.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/flat_hash_map.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "follow/random.h"
#include "follow/tape.h"
#include "recompute/lock.h"
#include "recompute/memory.h"
#include "recompute/node.h"
#include "storage/store.h"

namespace bayplan::recompute {

struct Value {
  Value(NodeIndex maker, const c10::Storage& made)
      : node(maker), bytes(static_cast<int64_t>(made.nbytes())), storage(made.getWeakStorageImpl()) {}

  NodeIndex node;
  int64_t bytes;
  c10::weak_intrusive_ptr<c10::StorageImpl> storage;
  c10::VariableVersion counter = {};
  uint32_t version = 0;
  bool counted = false;                 // the counter counts: tensors of inference mode have none
  bool latest = true;                   // no operator seen has written the storage since
  std::optional<c10::Storage> present;  // held by the tape
  c10::VariableVersion given;           // of the tensors that show `present` to autograd; enabled once there is one
  bool found = false;                   // somebody has read or saved it
  bool copied = false;                  // `present` is a copy, made before an operator wrote the storage
  // Somebody wrote the storage and hid it (`.data`, a collective): without a tape, too, those who saved it see the new.
  std::optional<c10::Storage> shown;
  int32_t saved = 0;    // tensors that autograd saved of it
  int32_t readers = 0;  // arguments of nodes that want it
  bool ever_saved = false;

  // A backward pass has written what it was given: what the value was is gone.
  bool spoilt() const { return given.enabled() && given.current_version() != 0; }
  bool needed() const { return (saved > 0 && !shown.has_value()) || readers > 0; }
};

// How often what ran.
struct Replays {
  int64_t on_demand = 0;
  int64_t ahead = 0;     // in windows
  int64_t left_out = 0;  // asked for in a window that had no room: something it reads was not there
  int64_t copies = 0;    // of what an operator wrote in place, while somebody else still needs what was there before
};

struct Policy {
  std::vector<uint8_t> store;      // by node: a `Store`
  bool store_others = true;        // nodes beyond; collectives are stored there in any case
  std::vector<std::string> names;  // what the policy was made for; from the first other name on nothing is stored
  int64_t most_bytes = kNoLimit;   // so much of what can run again is stored, and no more

  static constexpr int64_t kNoLimit = -1;
};

class Tape : public std::enable_shared_from_this<Tape> {
 public:
  Tape(c10::Device device, std::shared_ptr<const Policy> policy, bool timed)
      : device_(device), policy_(std::move(policy)), timed_(timed) {}
  ~Tape();
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  const c10::Device& device() const { return device_; }
  const Nodes& nodes() const { return nodes_; }
  const std::vector<Value>& values() const { return values_; }
  const Replays& replays() const { return replays_; }
  bool recording() const { return recording_; }
  // Nothing that it made can be needed any more.
  bool finished() const { return settled_ && closed_ == nodes_.size(); }
  std::optional<NodeIndex> diverged_at() const { return diverged_at_; }
  // Of what can run again, what the policy would store but for its limit; stored so far is `stored_bytes_`.
  int64_t asked_bytes() const { return asked_bytes_; }
  double time_us(const Node& node) const;
  // Of a timed tape: what ran again, in order, and for how long: from when it was asked for, or the one before it in a
  // chain ended, to its own end.
  std::vector<std::pair<NodeIndex, double>> again_us() const;

  // From now on what happens to the device's memory is noted there.
  void tell(std::shared_ptr<MemoryLog> log);

  void begin();
  // The region has ended: lets go of what nobody needs.
  void end();

  // ---- recording (recorder.cpp)
  // The next node: opened, given its arguments in order, and begun; closed when the operator has run, given its results
  // in order, and ended. Nothing else is recorded meanwhile.
  void open_node(const Recipe& recipe);
  void add_argument(const at::Tensor& tensor);
  void add_argument(const std::optional<at::Tensor>& tensor);
  void add_argument(const c10::IValue& value);
  void begin_node();
  void close_node();
  void add_result(int32_t result, int32_t element, const at::Tensor& tensor);
  void add_results(int32_t result, const c10::IValue& value);
  void end_node();
  // Whether the open node reads that storage, which is not the region's.
  bool is_given(const c10::Storage& storage) const;
  // The value that the tensor shows, or kNone: nobody's, or one that somebody else may have written.
  ValueIndex find(const at::Tensor& tensor) { return find(plain_storage_on(device_, tensor)); }
  // The same of the tensor's plain storage, or null.
  ValueIndex find(const c10::Storage* storage);
  // The same, where the asker knows that nobody is writing.
  ValueIndex look_up(const c10::Storage* storage);
  // Something that no operator tells is about to write the tensor. A collective in place has the name of c10d's
  // operator: what it leaves is a value, stored while somebody needs it.
  void begin_write(const at::Tensor& tensor, const std::string& name = "");
  void add_group(const std::string& name);  // in which the region communicates, which no operator says; "" is none
  const std::vector<std::string>& groups() const { return groups_; }

  // Before each of these nodes begins, in ascending order, `then` is told its index: the program has let go of the last
  // one's temporaries by then. What the node reads and `then` sent away comes back. Copies to the host come before
  // that; not those that gather on the device, where `gathers` says that this takes memory.
  void pause_before(std::vector<NodeIndex> nodes, std::function<void(NodeIndex)> then, bool gathers);
  void pause();  // a node is about to begin
  bool pauses() const { return !pauses_.empty(); }
  bool gathers() const { return gathers_; }

  // ---- what autograd saved
  // Autograd has saved a tensor of the value; `storage` is the value's.
  void save(ValueIndex value, c10::Storage storage);
  // It has let go of one. Where somebody holds the tape's lock, that one sees to it, and nobody waits.
  void unsave(ValueIndex value);
  at::Tensor take(ValueIndex value, const Geometry& geometry);

  // ---- replaying (replay.cpp)
  // Runs these nodes again, in order, where they are wanted and what they read is there; how many ran. The results
  // `but` these stay: they are there or not as before.
  int64_t replay(const std::vector<NodeIndex>& nodes, const std::vector<Result>& but = {});
  // Lets go of what these nodes made, `but` of these results, where they can run again; who needs it runs them again.
  void drop(const std::vector<NodeIndex>& nodes, const std::vector<Result>& but = {});
  // A backward pass is about to ask for what the region made, and its graph stays (`retain_graph`): until its end no
  // node is forgotten, and what is stored stays, as another pass may ask for the same.
  void begin_retained();
  // It is over: what ran again for it goes.
  void end_retained();
  int64_t present_bytes() const;
  // The storages that there are of what the node made, in the order of `Node::made`: what the tape holds, else the
  // first one for as long as somebody else does.
  std::vector<std::optional<c10::Storage>> held(NodeIndex node) const;

 private:
  using Address = const c10::StorageImpl*;

  struct OutsideRead {  // of a storage that the region did not make
    Address storage;
    NodeIndex node;
    size_t argument;  // index into Node::tensors
  };

  // The memory of a tape that is gone, for the next one: fresh blocks of this size are most of what a short region
  // costs.
  struct Room {
    Nodes nodes;
    std::vector<Value> values;
    ska::flat_hash_map<Address, ValueIndex> latest;
    std::vector<OutsideRead> outside_reads;
    std::vector<RandomState> random_states;
  };
  class Rooms;

  // A stream works with the storage: its block is not given to others before that has ended.
  void used_by(const c10::Storage& storage, c10::Stream stream) const;
  at::Tensor add_tensor(Node& node, size_t place, int32_t element, const at::Tensor& tensor);
  at::Tensor add_outside(Argument& argument, const at::Tensor& tensor, const c10::Storage* storage);
  void refuse_what_it_writes(Node& node);
  void keep_what_it_writes(Node& node);
  void keep_old_content(Address storage);
  void keep_what_cannot_run_again(Node& node);
  void keep_for_readers(ValueIndex value);
  void written_by_others(const c10::Storage& storage);
  void add_collective(const Recipe& recipe, ValueIndex value, const at::Tensor& tensor);
  bool is_as_first_found(Value& value);
  bool is_current(ValueIndex index, const c10::Storage& storage);
  void make_value(ValueIndex index, NodeIndex node, const at::Tensor& tensor, const c10::Storage& storage);
  c10::Stream current_stream() const { return guard_->getStream(device_); }
  void add_written(Node& node);
  void apply_policy(Node& node, NodeIndex index);
  void apply_limit(Node& node);
  void hold(Value& value) const;
  void hold_what_it_reads(const Node& node);
  void rewritten(Value& value, const c10::Storage& storage);
  bool is_unchanged(const Value& value) const;

  void note(Happened what, int32_t index) const {
    if (log_ != nullptr) log_->note(log_number_, what, index);
  }

  friend class Held;
  void unlock();
  void unsave_what_is_due();
  bool recorded_elsewhere() const { return recording_ && recorder_ != pthread_self(); }
  void no_longer_saved(ValueIndex value);

  at::Tensor give(Value& value, const Geometry& geometry);
  bool adopt(Value& value);
  void lend(const c10::Storage& storage) const;
  void have(ValueIndex value, bool demanded);
  void run(NodeIndex index, const std::vector<Result>& but = {});
  struct Moment {
    uint32_t mark = 0;  // on the stream; where there is none, the host's nanoseconds:
    int64_t ns = 0;
  };
  Moment moment();
  double between_us(const Moment& first, const Moment& last) const;
  torch::jit::Stack stack_of(Node& node, std::vector<c10::Storage>& written);
  bool can_run_again(NodeIndex node) const;
  void let_go_of(Value& value);
  bool stays(const Value& value) const;
  std::optional<size_t> changed_argument(const Node& node) const;

  void need_more(ValueIndex value);
  void need_less(ValueIndex value);
  void update(NodeIndex index);
  void settle();
  void settle_all();

  TapeLock lock_;
  std::atomic<bool> any_due_{false};
  std::mutex due_mutex_;         // nobody takes another lock under it
  std::vector<ValueIndex> due_;  // of which autograd let go while somebody held the lock
  const c10::Device device_;
  const std::shared_ptr<const Policy> policy_;
  const bool timed_;
  std::atomic<bool> recording_{false};
  pthread_t recorder_ = 0;
  bool settled_ = false;    // counts of readers hold from the end of the region on
  bool retaining_ = false;  // a backward pass is under way whose graph stays
  std::optional<c10::Stream> stream_;
  const c10::impl::DeviceGuardImplInterface* guard_ = nullptr;  // where there is a stream
  std::optional<c10::Stream> current_;                          // of the open node
  swap::Store* store_ = nullptr;                                // where there is a stream
  Nodes nodes_;
  std::vector<Value> values_;
  ska::flat_hash_map<Address, ValueIndex> latest_;
  std::vector<OutsideRead> outside_reads_;
  std::vector<RandomState> random_states_;
  std::optional<NodeIndex> diverged_at_;
  int64_t asked_bytes_ = 0, stored_bytes_ = 0;
  size_t closed_ = 0;
  std::vector<NodeIndex> pending_;  // whose wants may have changed
  Replays replays_;
  struct Again {
    NodeIndex node;
    Moment began, ended;
  };
  std::vector<Again> again_;
  Moment asked_;
  swap::Tape marks_;
  std::vector<std::string> groups_;
  std::vector<NodeIndex> pauses_;  // the next one last
  bool gathers_ = false;
  std::function<void(NodeIndex)> in_pause_;
  bool paused_ = false;  // right before the open node
  std::shared_ptr<MemoryLog> log_;
  int32_t log_number_ = MemoryLog::kNobody;
};

// While one lives, its thread holds the tape's lock.
class Held {
 public:
  explicit Held(Tape& tape) : tape_(tape) { tape_.lock_.lock(); }
  ~Held() { tape_.unlock(); }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

 private:
  Tape& tape_;
};

// What autograd holds in the place of a tensor.
class Packed {
 public:
  Packed() = default;
  ~Packed() {
    if (among_ != nullptr) leave();
    if (tape_ != nullptr) tape_->unsave(value_);
  }
  Packed(const Packed&) = delete;
  Packed& operator=(const Packed&) = delete;

  // In the place of that tensor. One of the next three says what of.
  void hold(const at::Tensor& tensor);
  // It is no value's.
  void known() { tensor_ = without_history(tensor_); }
  void become(std::shared_ptr<Tape> tape, ValueIndex value);
  // It will be known when the operator ends. Autograd may let go of it before, on the thread that runs the operator or
  // while that waits.
  void wait_among(std::vector<Packed*>& others) {
    others.push_back(this);
    among_ = &others;
  }
  void wait_no_more() { among_ = nullptr; }
  // The operator that saved the tensor has ended: now it is known what made it.
  void resolve(const std::shared_ptr<Tape>& tape);
  at::Tensor unpack();
  // Which value it is: the node that made it, and its place among what that made.
  std::optional<std::pair<NodeIndex, int32_t>> where() const;

 private:
  void leave();

  std::vector<Packed*>* among_ = nullptr;
  std::shared_ptr<Tape> tape_;  // null: not a value's, or not known yet
  ValueIndex value_ = kNone;
  uint32_t version_ = 0;  // the tensor's counter then: with hooks PyTorch does not look
  at::Tensor tensor_;     // while there is no tape
  Geometry geometry_;     // of a value's
};

}  // namespace bayplan::recompute

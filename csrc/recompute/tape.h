// One file: nodes, values and the tape that counts them are one state.
//
// A tape below autograd: the operators that a region of a forward pass ran, what autograd saved of their results, and
// how to have a discarded result again.
//
// *Node*: an operator that made or wrote a storage, with its arguments. *Value*: the content of a storage that the
// region made, from one operator that wrote it until the next. A value is *present* (the tape holds its storage) or
// absent; *needed* while autograd has saved a tensor of it, or a node that must run again reads it. A node *wants* its
// arguments while one of its values is needed and absent. All of this is counted, so that what nobody needs any more
// is let go at once.
//
// Running a node again gives the same bits: the same kernel on the same arguments, below autograd and autocast, with
// the random numbers that it drew. What the tape cannot tell apart from a writer that it did not see, it stores.
//
// The tape's lock is Python's: packing, unpacking and replaying hold it. Recording does not: a tape that records is its
// thread's alone.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Storage.h>
#include <c10/util/SmallVector.h>
#include <c10/util/flat_hash_map.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "follow/tape.h"
#include "recompute/memory.h"
#include "recompute/random.h"
#include "recompute/recipe.h"

namespace bayplan::recompute {

using NodeIndex = int32_t;
using ValueIndex = int32_t;
constexpr int32_t kNone = -1;

// How a tensor looks at a storage.
struct Geometry {
  c10::SmallVector<int64_t, 10> extents;  // sizes, then strides
  int64_t offset = 0;
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  c10::DispatchKeySet keys;  // its kind of tensor, conjugated and negative views told apart

  static Geometry of(const at::Tensor& tensor);
  void set(const at::Tensor& tensor);
  at::Tensor on(const c10::Storage& storage) const;
};

// A tensor among a node's arguments: which, where, and what of.
struct Argument {
  size_t place = 0;          // the argument
  int32_t element = kNone;   // in a list of tensors
  ValueIndex value = kNone;  // kNone: the tensor is not the region's, and stands among the node's arguments
  Geometry geometry = {};    // of a value
  bool written = false;      // by the operator's schema
  uint32_t version = 0;      // of another's tensor, when the operator began; its counter is the tensor's
  bool secret = false;  // another's tensor that the operator writes in secret: a copy is written when it runs again
  // Of another's tensor that its geometry describes wholly: what stands in the place of the tensor, which costs more.
  std::optional<c10::Storage> outside = {};
  c10::VariableVersion counter = {};  // its counter; that of a copy counts nothing
};

// What a node made: a result's storage, or a new content of an argument's.
struct Made {
  ValueIndex value;
  int32_t result;   // of the operator; kNone: the content of the argument below
  int32_t element;  // in a result that is a list
  size_t argument;  // index into Node::tensors
};

// What of a node's results stays: nothing, what autograd saved of them, or all that is read again.
enum Store : uint8_t { kNothing = 0, kSaved = 1, kAll = 2 };

struct NodeFacts {
  const Recipe* recipe = nullptr;
  int32_t random_state = kNone;  // of the generator, before: which of the tape's
  bool runs_again = true;        // else its values are stored
  const char* reason = nullptr;  // why it does not
  bool gradients = true;         // mode of gradients then: some kernels choose by it
  bool wants = false;
  uint8_t stored = kNothing;              // as the policy says
  bool closed = false;                    // nobody can need it any more
  uint32_t begin_mark = 0, end_mark = 0;  // on the stream; where there is none, the host's nanoseconds:
  int64_t begin_ns = 0, end_ns = 0;
};

struct Node : NodeFacts {
  std::vector<c10::IValue> arguments;  // the places of values, and of others' that `Argument` holds, are left empty
  std::vector<Argument> tensors;
  std::vector<Made> made;

  void refuse(const char* why) {
    runs_again = false;
    if (reason == nullptr) reason = why;
  }
  // Another's tensor among the arguments; index into `tensors`.
  at::Tensor tensor(size_t index) const;
  void set_tensor(size_t index, const at::Tensor& tensor);
  // Another's tensor is that content from now on.
  void set_outside(size_t index, const c10::Storage& storage);
  // Lets go of what it reads.
  void let_go();
  // As new, but for the memory of its vectors.
  void clear();
};

// A tape's nodes. Their memory stays when they go: most of what a short region costs is fresh blocks for each of them.
class Nodes {
 public:
  size_t size() const { return count_; }
  bool empty() const { return count_ == 0; }
  size_t capacity() const { return all_.size(); }
  Node& operator[](size_t index) { return all_[index]; }
  const Node& operator[](size_t index) const { return all_[index]; }
  Node& at(size_t index);
  Node* begin() { return all_.data(); }
  Node* end() { return all_.data() + count_; }
  const Node* begin() const { return all_.data(); }
  const Node* end() const { return all_.data() + count_; }
  Node& back() { return all_[count_ - 1]; }
  // The next node, empty, which is not counted before `add`.
  Node& next();
  Node& open() { return all_[count_]; }
  void add() { ++count_; }
  void take_back();
  void clear();

 private:
  std::vector<Node> all_;
  size_t count_ = 0;
};

// The storage of an ordinary tensor on that device: one that its `Geometry` describes wholly. Null for others.
const c10::Storage* plain_storage_on(c10::Device device, const at::Tensor& tensor);

// The tensor as it is now, without its history: it would hold the graph that holds the tape.
at::Tensor without_history(const at::Tensor& tensor);

// A storage with the same bytes.
c10::Storage copy_of(const c10::Storage& storage);

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
  bool found = false;                   // somebody has read or saved it
  bool copied = false;                  // `present` is a copy, made before an operator wrote the storage
  // Somebody wrote the storage and hid it (`.data`, a collective): without a tape, too, those who saved it see the new.
  std::optional<c10::Storage> shown;
  int32_t saved = 0;    // tensors that autograd saved of it
  int32_t readers = 0;  // arguments of nodes that want it
  bool ever_saved = false;

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
  std::vector<std::string> names;  // what the policy was made for; from the first other name on all is stored
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
  double time_us(const Node& node) const;

  // From now on what happens to the device's memory is noted there.
  void tell(std::shared_ptr<MemoryLog> log);

  void begin();
  // The region has ended: lets go of what nobody needs.
  void end();

  // ---- recording (recorder.cpp)
  // The next node begins; nothing else is recorded until it ends.
  void begin_node(const Recipe& recipe, c10::ArrayRef<c10::IValue> inputs);
  void end_node(c10::ArrayRef<c10::IValue> results);
  // The value that the tensor shows, or kNone: nobody's, or one that somebody else may have written.
  ValueIndex find(const at::Tensor& tensor) { return find(plain_storage_on(device_, tensor)); }
  // The same of the tensor's plain storage, or null.
  ValueIndex find(const c10::Storage* storage);
  // The same, where the asker knows that nobody is writing.
  ValueIndex look_up(const c10::Storage* storage);
  // Something that no operator tells is about to write the tensor. A collective in place has the name of c10d's
  // operator: what it leaves is a value, stored while somebody needs it.
  void begin_write(const at::Tensor& tensor, const std::string& name = "");

  // ---- what autograd saved
  void save(ValueIndex value);
  void unsave(ValueIndex value);
  at::Tensor take(ValueIndex value, const Geometry& geometry);

  // ---- replaying (replay.cpp)
  // Runs these nodes again, in order, where they are wanted and what they read is there; how many ran.
  int64_t replay(const std::vector<NodeIndex>& nodes);
  // Lets go of what these nodes made, where they can run again; who needs it runs them again.
  void drop(const std::vector<NodeIndex>& nodes);
  int64_t present_bytes() const;

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

  void add_argument(Node& node, size_t place, const c10::IValue& value);
  at::Tensor add_tensor(Node& node, size_t place, int32_t element, const at::Tensor& tensor);
  at::Tensor add_outside(Argument& argument, const at::Tensor& tensor, const c10::Storage* storage);
  void note_secret_writes(Node& node);
  void keep_what_it_writes(Node& node);
  void keep_old_content(Address storage);
  void keep_what_cannot_run_again(Node& node);
  void keep_for_readers(ValueIndex value);
  void written_by_others(const c10::Storage& storage);
  void add_collective(const Recipe& recipe, ValueIndex value, const at::Tensor& tensor);
  bool is_as_first_found(Value& value);
  ValueIndex make_value(NodeIndex node, const at::Tensor& tensor, const c10::Storage& storage);
  void add_result(Node& node, int32_t result, int32_t element, const at::Tensor& tensor);
  void add_written(Node& node);
  void apply_policy(Node& node, NodeIndex index);
  void hold(Value& value) const;
  void hold_what_it_reads(const Node& node);
  void rewritten(Value& value, const c10::Storage& storage);
  bool is_unchanged(const Value& value) const;

  void note(Happened what, int32_t index) const {
    if (log_ != nullptr) log_->note(log_number_, what, index);
  }

  bool adopt(Value& value);
  void lend(const c10::Storage& storage) const;
  void have(ValueIndex value, bool demanded);
  void run(NodeIndex index);
  torch::jit::Stack stack_of(Node& node, std::vector<c10::Storage>& written);
  std::optional<size_t> changed_argument(const Node& node) const;

  void need_more(ValueIndex value);
  void need_less(ValueIndex value);
  void update(NodeIndex index);
  void settle();

  const c10::Device device_;
  const std::shared_ptr<const Policy> policy_;
  const bool timed_;
  bool recording_ = false;
  bool settled_ = false;  // counts of readers hold from the end of the region on
  std::optional<c10::Stream> stream_;
  Nodes nodes_;
  std::vector<Value> values_;
  ska::flat_hash_map<Address, ValueIndex> latest_;
  std::vector<OutsideRead> outside_reads_;
  std::vector<RandomState> random_states_;
  std::optional<NodeIndex> diverged_at_;
  size_t closed_ = 0;
  std::vector<NodeIndex> pending_;  // whose wants may have changed
  Replays replays_;
  swap::Tape marks_;
  std::shared_ptr<MemoryLog> log_;
  int32_t log_number_ = MemoryLog::kNobody;
};

// What autograd holds in the place of a tensor.
class Packed final : public c10::intrusive_ptr_target {
 public:
  // Of a tensor that is not a value, or, if somebody will `resolve` it, of which it is not known yet.
  Packed(const at::Tensor& tensor, bool known);
  Packed(std::shared_ptr<Tape> tape, ValueIndex value, const at::Tensor& tensor);
  ~Packed() override;
  Packed(const Packed&) = delete;
  Packed& operator=(const Packed&) = delete;

  // The operator that saved the tensor has ended: now it is known what made it.
  void resolve(const std::shared_ptr<Tape>& tape);
  at::Tensor unpack() const;
  bool is_value() const { return tape_ != nullptr; }
  // Which value it is: the node that made it, and its place among what that made.
  std::optional<std::pair<NodeIndex, int32_t>> where() const;

 private:
  std::shared_ptr<Tape> tape_;
  ValueIndex value_ = kNone;
  Geometry geometry_;
  std::optional<at::Tensor> tensor_;  // not a value's, or not known yet
  uint32_t version_ = 0;              // its counter then: with hooks PyTorch does not look
};

}  // namespace bayplan::recompute

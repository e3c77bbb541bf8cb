// One file: what is needed, what is let go, and whose memory is used again.
#include "recompute/tape.h"

#include <c10/core/StreamGuard.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <mutex>

#include "recompute/recorder.h"

namespace bayplan::recompute {

// Rooms of tapes that are gone; as many as a model has blocks at once, and none that a huge region left.
class Tape::Rooms {
 public:
  static Rooms& all() {
    static auto* rooms = new Rooms();  // never destroyed: tapes may outlive main
    return *rooms;
  }
  std::optional<Room> take() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (free_.empty()) return std::nullopt;
    std::optional<Room> room(std::move(free_.back()));
    free_.pop_back();
    return room;
  }
  void give(Room room) {
    if (room.nodes.capacity() == 0 || room.nodes.capacity() > kLargest || room.values.capacity() > kLargest) return;
    if (room.random_states.capacity() > kMostStates) return;
    const std::lock_guard<std::mutex> lock(mutex_);
    if (free_.size() < kMost) free_.push_back(std::move(room));
  }

 private:
  static constexpr size_t kMost = 128, kLargest = 1024, kMostStates = 64;
  std::mutex mutex_;
  std::vector<Room> free_;
};

void Tape::begin() {
  TORCH_CHECK(nodes_.empty() && !recording_, "a tape records one region once: make a new one");
  recorder_ = pthread_self();
  recording_ = true;
  if (std::optional<Room> room = Rooms::all().take()) {
    nodes_ = std::move(room->nodes);
    values_ = std::move(room->values);
    latest_ = std::move(room->latest);
    outside_reads_ = std::move(room->outside_reads);
    random_states_ = std::move(room->random_states);
  } else {
    values_.reserve(64);
    outside_reads_.reserve(64);
  }
  if (device_.is_cpu()) return;
  guard_ = c10::impl::getDeviceGuardImpl(device_.type());
  stream_ = current_stream();
  store_ = &swap::Store::of(device_);
  store_->see(*stream_);
}

Tape::~Tape() {
  nodes_.clear();
  values_.clear();
  if (!latest_.empty()) latest_.clear();  // only where the region has not ended
  outside_reads_.clear();
  random_states_.clear();
  Rooms::all().give({std::move(nodes_), std::move(values_), std::move(latest_), std::move(outside_reads_),
                     std::move(random_states_)});
}

double Tape::time_us(const Node& node) const {
  if (!timed_) return 0.0;
  return between_us({node.begin_mark, node.begin_ns}, {node.end_mark, node.end_ns});
}

std::vector<std::pair<NodeIndex, double>> Tape::again_us() const {
  std::vector<std::pair<NodeIndex, double>> found;
  for (const Again& again : again_) found.emplace_back(again.node, between_us(again.began, again.ended));
  return found;
}

double Tape::between_us(const Moment& first, const Moment& last) const {
  if (!stream_.has_value()) return static_cast<double>(last.ns - first.ns) / 1e3;
  marks_.wait(last.mark);
  return marks_.at_us(last.mark) - marks_.at_us(first.mark);
}

Tape::Moment Tape::moment() {
  if (!timed_) return {};
  if (stream_.has_value()) return {marks_.mark(*stream_), 0};
  return {0, std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1)};
}

void Tape::tell(std::shared_ptr<MemoryLog> log) {
  log_ = std::move(log);
  log_number_ = log_->add_tape();
}

void Tape::end() {
  const Held held(*this);  // what other threads let go of meanwhile is seen to when it goes
  recording_ = false;
  in_pause_ = nullptr;
  pauses_.clear();
  latest_.clear();
  outside_reads_.clear();
  for (Node& node : nodes_) {
    if ((node.stored != kSaved && node.stored != kRead) || !node.runs_again) continue;
    for (const Made& made : node.made) {
      if (!stays(values_[made.value])) values_[made.value].present.reset();
    }
  }
  settle_all();
  note(Happened::kEnd, kNone);
}

void Tape::pause_before(std::vector<NodeIndex> nodes, std::function<void(NodeIndex)> then, bool gathers) {
  gathers_ = gathers;
  std::sort(nodes.begin(), nodes.end(), std::greater<>());
  pauses_ = std::move(nodes);
  in_pause_ = std::move(then);
}

void Tape::pause() {
  while (!pauses_.empty() && static_cast<size_t>(pauses_.back()) <= nodes_.size()) {
    const NodeIndex index = pauses_.back();
    pauses_.pop_back();
    paused_ = true;
    // The node may run on a stream of the program's own; what leaves and returns is the region's stream's.
    c10::OptionalStreamGuard own;
    if (stream_.has_value() && current_stream() != *stream_) {
      store_->see(current_stream());
      own.reset_stream(*stream_);
    }
    in_pause_(index);
  }
}

void Tape::save(ValueIndex index, c10::Storage storage) {
  Value& value = values_[index];
  value.ever_saved = true;
  ++value.saved;
  const uint8_t stored = nodes_[value.node].stored;
  if ((stored == kSaved || stored == kAll) && !value.present.has_value() && value.latest) {
    value.present = std::move(storage);
  }
  if (settled_ && value.saved == 1 && value.readers == 0) need_more(index);
  note(Happened::kSave, index);
}

void Tape::unsave(ValueIndex index) {
  if (!recorded_elsewhere() && lock_.try_lock()) {
    no_longer_saved(index);
    return unlock();
  }
  {
    const std::lock_guard<std::mutex> lock(due_mutex_);
    due_.push_back(index);
    any_due_ = true;
  }
  unsave_what_is_due();
}

// Who finds the lock taken says so before trying again, and who held it looks after letting go: one of the two sees it.
void Tape::unlock() {
  lock_.unlock();
  if (any_due_) unsave_what_is_due();
}

void Tape::unsave_what_is_due() {
  while (any_due_ && !recorded_elsewhere() && lock_.try_lock()) {
    std::vector<ValueIndex> due;
    {
      const std::lock_guard<std::mutex> lock(due_mutex_);
      due.swap(due_);
      any_due_ = false;
    }
    for (const ValueIndex index : due) no_longer_saved(index);
    lock_.unlock();
  }
}

void Tape::no_longer_saved(ValueIndex index) {
  Value& value = values_[index];
  --value.saved;
  if (value.saved == 0) value.shown.reset();
  if (settled_ && !value.needed()) need_less(index);
  note(Happened::kUnsave, index);
}

// The value has become needed.
void Tape::need_more(ValueIndex index) {
  pending_.push_back(values_[index].node);
  settle();
}

// Whether the policy stores the value, once it is known what autograd has saved.
bool Tape::stays(const Value& value) const {
  const uint8_t stored = nodes_[value.node].stored;
  return stored == kAll || (stored != kNothing && value.ever_saved == (stored == kSaved));
}

// What is read stays for the next backward pass, too, where there may be one; what is saved then is needed.
void Tape::let_go_of(Value& value) {
  if (!retaining_ || nodes_[value.node].stored == kSaved || !stays(value)) value.present.reset();
}

// Nobody needs the value any more.
void Tape::need_less(ValueIndex index) {
  let_go_of(values_[index]);
  pending_.push_back(values_[index].node);
  settle();
}

void Tape::settle() {
  if (!settled_) return;
  while (!pending_.empty()) {
    const NodeIndex index = pending_.back();
    pending_.pop_back();
    update(index);
  }
}

// From the last node to the first: who reads a value comes after who made it, and counts before that one is seen to.
// One that made two results would let go of the one whose reader has not been counted.
void Tape::settle_all() {
  settled_ = false;
  for (auto index = static_cast<NodeIndex>(nodes_.size()) - 1; index >= 0; --index) update(index);
  settled_ = true;
  settle();
}

// Counts the node among the readers of its arguments while it wants them, and forgets one that nobody can need again.
void Tape::update(NodeIndex index) {
  Node& node = nodes_[index];
  if (node.closed) return;
  bool wants = false, needed = false;
  for (const Made& made : node.made) {
    Value& value = values_[made.value];
    if (!value.needed()) {
      let_go_of(value);
      continue;
    }
    needed = true;
    wants = wants || !value.present.has_value();
  }
  if (wants != node.wants) {
    node.wants = wants;
    for (const Argument& argument : node.tensors) {
      if (argument.value == kNone) continue;
      Value& value = values_[argument.value];
      const bool before = value.needed();
      value.readers += wants ? 1 : -1;
      if (settled_ && before != value.needed()) {
        if (!value.needed()) let_go_of(value);
        pending_.push_back(value.node);
      }
    }
  }
  if (needed || retaining_) return;
  ++closed_;
  node.closed = true;  // readers come later in the region: none is left
  node.let_go();
}

int64_t Tape::present_bytes() const {
  int64_t bytes = 0;
  for (const Value& value : values_) bytes += value.present.has_value() ? value.bytes : 0;
  return bytes;
}

void Packed::become(std::shared_ptr<Tape> tape, ValueIndex value) {
  tape_ = std::move(tape);
  value_ = value;
  geometry_.set(tensor_);
  tape_->save(value_, tensor_.storage());
  tensor_.reset();
}

std::vector<std::optional<c10::Storage>> Tape::held(NodeIndex node) const {
  TORCH_CHECK_INDEX(node >= 0 && static_cast<size_t>(node) < nodes_.size(), "node ", node, " of a tape of ",
                    nodes_.size(), " nodes: give one of them");
  std::vector<std::optional<c10::Storage>> found;
  for (const Made& made : nodes_[node].made) {
    const Value& value = values_[made.value];
    found.push_back(value.present);
    if (value.present.has_value() || !value.latest) continue;
    if (const auto others = value.storage.lock()) found.back() = c10::Storage(others);
  }
  return found;
}

void Packed::hold(const at::Tensor& tensor) {
  tensor_ = tensor;
  c10::TensorImpl* body = tensor.unsafeGetTensorImpl();
  if (!body->is_inference()) version_ = body->version_counter().current_version();
}

void Packed::resolve(const std::shared_ptr<Tape>& tape) {
  c10::TensorImpl* body = tensor_.unsafeGetTensorImpl();
  // What the operator wrote after it was saved (`x.mul_(x)`) is no value that anybody saved: `unpack` says so.
  const bool same = body->is_inference() || body->version_counter().current_version() == version_;
  if (const ValueIndex value = same ? tape->find(tensor_) : kNone; value != kNone) return become(tape, value);
  known();
}

void Packed::leave() { among_->erase(std::find(among_->begin(), among_->end(), this)); }

at::Tensor Packed::unpack() {
  if (tape_ != nullptr) return tape_->take(value_, geometry_);
  c10::TensorImpl* body = tensor_.unsafeGetTensorImpl();
  if (body->is_inference()) return tensor_;
  const uint32_t version = body->version_counter().current_version();
  TORCH_CHECK(version == version_, "one of the variables needed for gradient computation has been modified by an ",
              "inplace operation: [", tensor_.toString(), " ", tensor_.sizes(), "] is at version ", version,
              "; expected version ", version_, " instead. Training without a plan says so, too");
  return tensor_;
}

std::optional<std::pair<NodeIndex, int32_t>> Packed::where() const {
  if (tape_ == nullptr) return std::nullopt;
  const Held held(*tape_);
  const NodeIndex maker = tape_->values()[value_].node;
  const std::vector<Made>& made = tape_->nodes()[maker].made;
  const auto it = std::find_if(made.begin(), made.end(), [&](const Made& one) { return one.value == value_; });
  return std::pair(maker, static_cast<int32_t>(it - made.begin()));
}

}  // namespace bayplan::recompute

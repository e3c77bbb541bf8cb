// One file: the thread's callbacks and what each operator of the region read, made and wrote are one pass over a frame.
#include <ATen/Context.h>

#include <algorithm>
#include <chrono>
#include <mutex>

#include "profiler/storages.h"
#include "recompute/hooks.h"
#include "recompute/recorder.h"
#include "recompute/tape.h"

namespace bayplan::recompute {
namespace {

constexpr c10::DispatchKeySet kBelow(c10::DispatchKeySet::FULL_AFTER, kRecording);

// What the thread records, and the operator that it is in.
struct Recording {
  std::shared_ptr<Tape> tape;
  uint64_t number = 0;  // of the tape, among those of the thread
  bool in_operator = false;
  bool it_writes = false;                           // the operator writes arguments, or may
  bool observed = false;                            // an observer stands in for the dispatcher
  std::vector<c10::intrusive_ptr<Packed>> unknown;  // saved while the operator runs, which may be what made them
  int stopped = 0;
};

Recording& recording() {
  thread_local Recording own;
  return own;
}

at::Generator generator_of(c10::ArrayRef<c10::IValue> inputs, c10::Device device) {
  for (const c10::IValue& value : inputs) {
    if (value.isGenerator()) return value.toGenerator();
  }
  return at::globalContext().defaultGenerator(device);
}

// The operator of that tape has ended, or thrown: then it has no results, and may have written.
void end_operator(Recording& own, uint64_t number, c10::ArrayRef<c10::IValue> results) {
  own.in_operator = false;
  if (own.tape != nullptr && own.number == number) {
    own.tape->end_node(results);
    for (const auto& packed : own.unknown) packed->resolve(own.tape);
  }
  own.unknown.clear();
}

void record_call(Recording& own, const Recipe& recipe, const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                 torch::jit::Stack& stack) {
  const c10::impl::ExcludeDispatchKeyGuard what_it_calls(kRecording);
  const c10::FunctionSchema& schema = op.schema();
  own.tape->begin_node(recipe, torch::jit::last(stack, schema.arguments().size()));
  const uint64_t number = own.number;
  own.in_operator = true;
  own.it_writes = recipe.may_write;
  try {
    op.redispatchBoxed(keys & kBelow, &stack);
  } catch (...) {
    end_operator(own, number, {});
    throw;
  }
  end_operator(own, number, torch::jit::last(stack, schema.returns().size()));
}

struct OpenNode final : at::ObserverContext {
  explicit OpenNode(uint64_t of) : number(of) {}
  const uint64_t number;
};

std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& frame) {
  Recording& own = recording();
  if (own.tape == nullptr || own.in_operator || own.stopped > 0) return nullptr;
  if (!c10::impl::tls_is_dispatch_key_excluded(kRecording)) return nullptr;  // the dispatcher tells of it
  const Recipe* recipe = find_recipe(frame);
  if (recipe == nullptr || is_transparent(*recipe, frame.inputs(), own.tape->device())) return nullptr;
  auto open = std::make_unique<OpenNode>(own.number);
  const c10::impl::ExcludeDispatchKeyGuard what_it_calls(kRecording);
  own.in_operator = true;  // also for what beginning a node calls
  own.it_writes = recipe->may_write;
  try {
    own.tape->begin_node(*recipe, frame.inputs());
  } catch (...) {
    own.in_operator = false;
    throw;
  }
  return open;
}

void on_end(const at::RecordFunction& frame, at::ObserverContext* context) {
  if (context == nullptr) return;
  end_operator(recording(), static_cast<OpenNode*>(context)->number, frame.outputs());
}

// While a tensor subclass (DTensor) takes an operator apart, PyTorch leaves out all keys above Python's, the recorder's
// among them: an observer of the thread tells of what it calls.
class Observed {
 public:
  explicit Observed(Recording& own) : own_(own), begins_(!own.observed) {
    if (!begins_) return;
    own_.observed = true;
    handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(on_start, on_end)
                                             .needsInputs(true)
                                             .needsOutputs(true)
                                             .scopes({at::RecordScope::FUNCTION}));
  }
  ~Observed() {
    if (!begins_) return;
    at::removeCallback(handle_);
    own_.observed = false;
  }
  Observed(const Observed&) = delete;
  Observed& operator=(const Observed&) = delete;

 private:
  Recording& own_;
  const bool begins_;
  at::CallbackHandle handle_ = at::INVALID_CALLBACK_HANDLE;
};

void on_call(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  Recording& own = recording();
  if (own.tape == nullptr || own.in_operator || own.stopped > 0) {
    const c10::impl::ExcludeDispatchKeyGuard what_it_calls(kRecording);
    return op.redispatchBoxed(keys & kBelow, stack);
  }
  const Recipe* recipe = find_recipe(op);
  const bool recorded =
      recipe != nullptr &&
      !is_transparent(*recipe, torch::jit::last(*stack, op.schema().arguments().size()), own.tape->device());
  if (recorded) return record_call(own, *recipe, op, keys, *stack);
  std::optional<Observed> observed;
  if (has_subclass(torch::jit::last(*stack, op.schema().arguments().size()))) observed.emplace(own);
  op.redispatchBoxed(keys & kBelow, stack);
}

int64_t host_ns() { return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1); }

bool is_true(c10::ArrayRef<c10::IValue> inputs, size_t place) {
  return place < inputs.size() && inputs[place].isBool() && inputs[place].toBool();
}

// Attention without dropout draws nothing.
bool draws(const Recipe& recipe, c10::ArrayRef<c10::IValue> inputs) {
  if (!recipe.dropout.has_value() || *recipe.dropout >= inputs.size()) return true;
  const c10::IValue& share = inputs[*recipe.dropout];
  return !share.isDouble() || share.toDouble() != 0.0;
}

bool is_among(const std::vector<bool>& marks, size_t place) { return place < marks.size() && marks[place]; }

template <typename Visit>
void for_each_element(const c10::IValue& value, const Visit& visit) {  // visit(element, tensor)
  if (value.isTensor()) {
    if (value.toTensor().defined()) visit(kNone, value.toTensor());
  } else if (value.isTensorList()) {
    int32_t element = 0;
    for (const at::Tensor& tensor : value.toTensorList()) {
      if (tensor.defined()) visit(element, tensor);
      ++element;
    }
  } else if (value.isList()) {
    int32_t element = 0;
    for (const c10::IValue& one : value.toListRef()) {
      if (one.isTensor() && one.toTensor().defined()) visit(element, one.toTensor());
      ++element;
    }
  }
}

// Once a process, before the first recording.
void enter_dispatcher() {
  static auto* entered = new std::vector<c10::RegistrationHandleRAII>();  // until exit: other threads may still run
  static std::once_flag once;
  std::call_once(once, [] {
    auto& dispatcher = c10::Dispatcher::singleton();
    entered->push_back(dispatcher.registerFallback(kRecording, c10::KernelFunction::makeFromBoxedFunction<&on_call>(),
                                                   "bayplan: the recorder of tapes"));
    for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
      const auto op = dispatcher.findSchema(name);
      if (!op.has_value() || name.name.compare(0, 6, "aten::") != 0 || !is_never_recorded(*op)) continue;
      entered->push_back(dispatcher.registerImpl(name, kRecording, c10::KernelFunction::makeFallthrough(), std::nullopt,
                                                 nullptr, "bayplan: never recorded"));
    }
  });
}

}  // namespace

Tape* recording_tape() {
  const Recording& own = recording();
  return own.stopped > 0 ? nullptr : own.tape.get();
}

bool inside_node() { return recording().in_operator; }

NotRecording::NotRecording() { ++recording().stopped; }
NotRecording::~NotRecording() { --recording().stopped; }
bool NotRecording::on() { return recording().stopped > 0; }

void start_recording(std::shared_ptr<Tape> tape) {
  Recording& own = recording();
  TORCH_CHECK(own.tape == nullptr, "another tape is recording on this thread: end it first, or make the regions one");
  enter_dispatcher();
  tape->begin();
  own.tape = std::move(tape);
  ++own.number;
  begin_hooks();
  c10::impl::tls_set_dispatch_key_included(kRecording, true);
}

void stop_recording() {
  Recording& own = recording();
  if (own.tape == nullptr) return;
  c10::impl::tls_set_dispatch_key_included(kRecording, false);
  end_hooks();
  own.in_operator = false;
  own.unknown.clear();
  const std::shared_ptr<Tape> tape = std::move(own.tape);
  own.tape = nullptr;
  tape->end();
}

void hold_idle_recorder(bool hold) {
  TORCH_CHECK(recording().tape == nullptr, "a tape is recording on this thread: end it first");
  enter_dispatcher();
  c10::impl::tls_set_dispatch_key_included(kRecording, hold);
}

c10::intrusive_ptr<Packed> pack(const at::Tensor& tensor) {
  Recording& own = recording();
  const bool recorded = own.tape != nullptr && own.stopped == 0;
  const c10::Storage* storage = recorded ? plain_storage_on(own.tape->device(), tensor) : nullptr;
  if (storage == nullptr) return c10::make_intrusive<Packed>(tensor, /*known=*/true);
  ValueIndex value = kNone;
  if (!own.in_operator) {
    value = own.tape->find(storage);
  } else if (!own.it_writes) {
    value = own.tape->look_up(storage);
  }
  if (value != kNone) return c10::make_intrusive<Packed>(own.tape, value, tensor);
  auto packed = c10::make_intrusive<Packed>(tensor, /*known=*/!own.in_operator);
  if (own.in_operator) own.unknown.push_back(packed);  // the operator may be the one that makes it
  return packed;
}

void Tape::begin_node(const Recipe& recipe, c10::ArrayRef<c10::IValue> inputs) {
  note(Happened::kNode, static_cast<NodeIndex>(nodes_.size()));
  Node& node = nodes_.next();
  node.recipe = &recipe;
  node.gradients = c10::GradMode::is_enabled();
  node.arguments.reserve(inputs.size());
  for (size_t place = 0; place < inputs.size(); ++place) add_argument(node, place, inputs[place]);
  if (!recipe.secretly_if.has_value() || is_true(inputs, *recipe.secretly_if)) note_secret_writes(node);
  for (const Argument& argument : node.tensors) {
    if (argument.written && argument.value == kNone) node.refuse("it writes a tensor that is not the region's");
  }
  if (recipe.communicates_in_place) node.refuse("it communicates in place");
  if (stream_.has_value() && swap::current_stream(device_).id() != stream_->id()) {
    node.refuse("it runs on another stream than the region began on");
  }
  keep_what_cannot_run_again(node);
  keep_what_it_writes(node);
  if (recipe.random && draws(recipe, inputs)) {
    node.random_state = static_cast<int32_t>(random_states_.size());
    random_states_.emplace_back(generator_of(inputs, device_));
  }
  if (timed_ && stream_.has_value()) node.begin_mark = marks_.mark(*stream_);
  if (timed_) node.begin_ns = host_ns();
}

void Tape::add_argument(Node& node, size_t place, const c10::IValue& value) {
  if (value.isTensor()) {
    node.arguments.push_back(value.toTensor().defined() ? c10::IValue(add_tensor(node, place, kNone, value.toTensor()))
                                                        : value);
  } else if (value.isTensorList()) {  // a list of its own: the caller's is not the tape's to change
    c10::List<at::Tensor> own;
    int32_t element = 0;
    for (const at::Tensor& tensor : value.toTensorList()) {
      own.push_back(tensor.defined() ? add_tensor(node, place, element, tensor) : tensor);
      ++element;
    }
    node.arguments.emplace_back(std::move(own));
  } else if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> own;
    int32_t element = 0;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorList().vec()) {
      const bool is_one = tensor.has_value() && tensor->defined();
      own.push_back(is_one ? std::optional<at::Tensor>(add_tensor(node, place, element, *tensor)) : tensor);
      ++element;
    }
    node.arguments.emplace_back(std::move(own));
  } else {
    node.arguments.push_back(value);
  }
}

// What the node keeps of the tensor: nothing of a value, which it names.
at::Tensor Tape::add_tensor(Node& node, size_t place, int32_t element, const at::Tensor& tensor) {
  Argument& argument = node.tensors.emplace_back();
  argument.place = place;
  argument.element = element;
  argument.written = is_among(node.recipe->info->writes, place);
  const c10::Storage* storage = plain_storage_on(device_, tensor);
  argument.value = find(storage);
  if (argument.value != kNone && nodes_[values_[argument.value].node].recipe->allocates &&
      !is_among(node.recipe->overwrites, place)) {
    written_by_others(*storage);  // somebody may have filled it, and no operator told
    argument.value = kNone;
  }
  if (argument.value != kNone) {
    argument.geometry.set(tensor);
    return at::Tensor();
  }
  return add_outside(argument, tensor, storage);
}

void Tape::note_secret_writes(Node& node) {
  for (const size_t place : node.recipe->secret_writes) {
    for (Argument& argument : node.tensors) {
      if (argument.place != place) continue;
      argument.secret = argument.value == kNone;
      if (argument.value != kNone) node.refuse("it writes in secret what the region has made");
    }
  }
}

void Tape::end_node(c10::ArrayRef<c10::IValue> results) {
  const auto index = static_cast<NodeIndex>(nodes_.size());
  Node& own = nodes_.open();
  if (timed_) own.end_ns = host_ns();
  if (timed_ && stream_.has_value()) own.end_mark = marks_.mark(*stream_);
  nodes_.add();
  for (size_t result = 0; result < results.size(); ++result) {
    for_each_element(results[result], [&](int32_t element, const at::Tensor& tensor) {
      add_result(own, static_cast<int32_t>(result), element, tensor);
    });
  }
  add_written(own);
  for (const Argument& argument : own.tensors) {  // a writer that told nobody
    const bool secret = std::find(own.recipe->secret_writes.begin(), own.recipe->secret_writes.end(), argument.place) !=
                        own.recipe->secret_writes.end();
    if (!secret || argument.value == kNone) continue;
    if (const auto held = values_[argument.value].storage.lock()) written_by_others(c10::Storage(held));
  }
  if (!own.made.empty()) {
    apply_policy(own, index);
    hold_what_it_reads(own);
    return note(Happened::kMade, index);
  }
  while (!outside_reads_.empty() && outside_reads_.back().node == index) outside_reads_.pop_back();
  nodes_.take_back();
}

void Tape::add_result(Node& node, int32_t result, int32_t element, const at::Tensor& tensor) {
  // A subclass (a collective's result that nobody has waited for) has a storage without bytes; its tensor is seen
  // inside.
  const c10::Storage* storage = plain_storage_on(device_, tensor);
  if (storage == nullptr || storage->nbytes() == 0 || latest_.count(storage->unsafeGetStorageImpl()) > 0) return;
  const auto index = static_cast<NodeIndex>(nodes_.size() - 1);
  for (auto read = outside_reads_.rbegin(); read != outside_reads_.rend() && read->node == index; ++read) {
    if (read->storage == storage->unsafeGetStorageImpl()) return;
  }
  node.made.push_back({make_value(index, tensor, *storage), result, element, 0});
}

void Tape::add_written(Node& node) {
  const auto index = static_cast<NodeIndex>(nodes_.size() - 1);
  for (size_t place = 0; place < node.tensors.size(); ++place) {
    const Argument& argument = node.tensors[place];
    if (argument.value == kNone || !(argument.written || node.recipe->communicates_in_place)) continue;
    Value& old = values_[argument.value];
    if (!old.latest) continue;  // given twice
    const auto held = old.storage.lock();
    if (!held) continue;
    const c10::Storage storage(held);
    rewritten(old, storage);
    const c10::VariableVersion counter = old.counter;
    const bool counted = old.counted;
    const auto value = static_cast<ValueIndex>(values_.size());
    Value& fresh = values_.emplace_back(index, storage);
    fresh.counter = counter;
    fresh.counted = counted;
    if (fresh.counted) fresh.version = fresh.counter.current_version();
    latest_[held.get()] = value;
    if (log_ != nullptr) log_->follow(log_number_, value, storage);
    node.made.push_back({value, kNone, kNone, place});
  }
}

ValueIndex Tape::make_value(NodeIndex node, const at::Tensor& tensor, const c10::Storage& storage) {
  const auto index = static_cast<ValueIndex>(values_.size());
  Value& value = values_.emplace_back(node, storage);
  c10::TensorImpl* body = tensor.unsafeGetTensorImpl();
  value.counted = !body->is_inference();
  if (value.counted) {
    value.counter = body->version_counter();
    value.version = value.counter.current_version();
  }
  latest_[storage.unsafeGetStorageImpl()] = index;
  if (log_ != nullptr) log_->follow(log_number_, index, storage);
  return index;
}

void Tape::apply_policy(Node& node, NodeIndex index) {
  const auto place = static_cast<size_t>(index);
  if (!diverged_at_.has_value() && place < policy_->names.size() && policy_->names[place] != node.recipe->info->name) {
    diverged_at_ = index;
  }
  if (diverged_at_.has_value() || !node.runs_again) {
    node.stored = kAll;
  } else if (place < policy_->store.size()) {
    node.stored = policy_->store[place];
  } else {
    node.stored = policy_->store_others || node.recipe->info->communicates ? kAll : kNothing;
  }
}

ValueIndex Tape::look_up(const c10::Storage* storage) {
  if (storage == nullptr) return kNone;
  const auto found = latest_.find(storage->unsafeGetStorageImpl());
  if (found == latest_.end()) return kNone;
  Value& value = values_[found->second];
  const bool same = is_unchanged(value) || is_as_first_found(value);
  value.found = true;
  return same && static_cast<int64_t>(storage->nbytes()) == value.bytes ? found->second : kNone;
}

ValueIndex Tape::find(const c10::Storage* storage) {
  const ValueIndex value = look_up(storage);
  if (value == kNone && storage != nullptr) written_by_others(*storage);
  return value;
}

bool Tape::is_unchanged(const Value& value) const {
  return !value.counted || value.counter.current_version() == value.version;
}

}  // namespace bayplan::recompute

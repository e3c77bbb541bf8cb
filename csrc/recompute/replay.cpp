// One file: running nodes again, from the random numbers that they drew to the storages that they write.
#include <ATen/Context.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <mutex>

#include "profiler/storages.h"
#include "recompute/recorder.h"
#include "recompute/tape.h"
#include "storage/waits.h"

namespace bayplan::recompute {
namespace {

// Below autograd, autocast and modes of Python: what the recorded operators themselves ran under.
class Below {
 public:
  Below() : keys_(c10::autocast_dispatch_keyset | c10::python_ks | c10::DispatchKeySet(kRecording)) {}

 private:
  const NotRecording quiet_ = {};
  const at::NoGradGuard no_gradients_ = {};
  const at::AutoDispatchBelowADInplaceOrView below_autograd_ = {};
  const c10::impl::ExcludeDispatchKeyGuard keys_;
};

// Random numbers as they were; afterwards the generator goes on where it was.
class RandomNumbers {
 public:
  RandomNumbers(const RandomState* state, const torch::jit::Stack& stack, c10::Device device) {
    if (state == nullptr) return;
    for (const c10::IValue& value : stack) {
      if (value.isGenerator()) generator_ = value.toGenerator();
    }
    if (!generator_.has_value()) generator_ = at::globalContext().defaultGenerator(device);
    before_.emplace(*generator_);
    state->give_back(*generator_);
  }
  ~RandomNumbers() {
    if (before_.has_value()) before_->give_back(*generator_);
  }
  RandomNumbers(const RandomNumbers&) = delete;
  RandomNumbers& operator=(const RandomNumbers&) = delete;

 private:
  std::optional<at::Generator> generator_;
  std::optional<RandomState> before_;
};

void wait_for(const at::Tensor& tensor) {
  static const auto wait = c10::Dispatcher::singleton().findSchemaOrThrow("_c10d_functional::wait_tensor", "");
  torch::jit::Stack stack{tensor};
  wait.callBoxed(stack);
}

// The same value; a list of tensors is a new one with the same tensors.
c10::IValue with_own_list(const c10::IValue& value) {
  if (value.isTensorList()) return value.toTensorList().copy();
  if (value.isOptionalTensorList()) return value.toOptionalTensorList().copy();
  return value;
}

bool is_among(const std::vector<Result>& results, NodeIndex node, size_t place) {
  return std::find(results.begin(), results.end(), Result(node, static_cast<int32_t>(place))) != results.end();
}

const at::Tensor& result_of(const torch::jit::Stack& results, const Made& made, at::Tensor& element) {
  const c10::IValue& value = results.at(static_cast<size_t>(made.result));
  if (made.element == kNone) return value.toTensor();
  element = value.isTensorList() ? value.toTensorList().get(made.element)
                                 : value.toListRef()[static_cast<size_t>(made.element)].toTensor();
  return element;
}

}  // namespace

c10::Storage copy_of(const c10::Storage& storage) {
  const Below below;
  const auto bytes = static_cast<int64_t>(storage.nbytes());
  const at::Tensor copy = at::empty({bytes}, at::TensorOptions().dtype(at::kByte).device(storage.device()));
  Geometry whole = Geometry::of(copy);
  at::Tensor(copy).copy_(whole.on(storage));
  return copy.storage();
}

// Nodes run again on the stream on which they first ran, wherever autograd asks: what they read was ordered there.
class OnStreamOfRegion {
 public:
  explicit OnStreamOfRegion(const std::optional<c10::Stream>& stream) {
    if (!stream.has_value()) return;
    const c10::Stream asking = swap::current_stream(stream->device());
    if (asking == *stream) return;
    asking_ = asking;
    own_ = *stream;
    recorded_event(asking, /*timed=*/false)->block(*own_);
    guard_.reset_stream(*own_);
  }
  ~OnStreamOfRegion() {
    if (asking_.has_value()) recorded_event(*own_, /*timed=*/false)->block(*asking_);
  }
  OnStreamOfRegion(const OnStreamOfRegion&) = delete;
  OnStreamOfRegion& operator=(const OnStreamOfRegion&) = delete;

 private:
  std::optional<c10::Stream> asking_, own_;
  c10::OptionalStreamGuard guard_;
};

// Its program need not have: without a tape it is autograd that keeps what is read on several streams.
void Tape::used_by(const c10::Storage& storage, c10::Stream stream) const {
  if (store_ == nullptr || !store_->several_streams()) return;
  const c10::DataPtr& data = storage.unsafeGetStorageImpl()->_mutable_data_ptr_no_checks();
  if (data.get() != nullptr) c10::impl::VirtualGuardImpl(device_.type()).recordDataPtrOnStream(data, stream);
}

// The storage goes to who asks, perhaps on another stream: its memory is not given away before that one has read it.
void Tape::lend(const c10::Storage& storage) const {
  if (!stream_.has_value()) return;
  const c10::Stream asking = swap::current_stream(device_);
  if (asking != *stream_) {
    store_->see(asking);
    recorded_event(*stream_, /*timed=*/false)->block(asking);
  }
  used_by(storage, asking);
}

at::Tensor Tape::take(ValueIndex index, const Geometry& geometry) {
  const Held held(*this);
  const Value& value = values_[index];
  TORCH_CHECK(is_unchanged(value), "one of the variables needed for gradient computation has been modified by an ",
              "inplace operation: what ", nodes_[value.node].recipe->info->name, " made is at version ",
              value.counter.current_version(), "; expected version ", value.version,
              " instead. Training without a plan says so, too");
  if (value.shown.has_value()) return geometry.on(*value.shown);
  note(Happened::kTake, index);
  if (!value.present.has_value()) have(index, /*demanded=*/true);
  note(Happened::kTaken, index);
  return give(values_[index], geometry);
}

// All tensors that show it count writes together, as without a tape those do that autograd unpacks.
at::Tensor Tape::give(Value& value, const Geometry& geometry) {
  TORCH_CHECK(!value.spoilt(), "one of the variables needed for gradient computation has been modified by an inplace ",
              "operation: a backward pass has written what ", nodes_[value.node].recipe->info->name,
              " made. Training without a plan says so, too");
  lend(*value.present);
  at::Tensor tensor = geometry.on(*value.present);
  c10::TensorImpl* body = tensor.unsafeGetTensorImpl();
  if (value.given.enabled()) {
    body->set_version_counter(value.given);
  } else if (!body->is_inference()) {
    value.given = body->version_counter();
  }
  return tensor;
}

// Somebody else still holds the storage, and nobody has written it since.
bool Tape::adopt(Value& value) {
  if (value.present.has_value()) return true;
  if (!value.latest || !value.counted || !is_unchanged(value) || value.spoilt()) return false;
  const auto held = value.storage.lock();
  if (!held || static_cast<int64_t>(held->nbytes()) != value.bytes) return false;
  value.present = c10::Storage(held);
  return true;
}

void Tape::have(ValueIndex wanted, bool demanded) {
  std::vector<NodeIndex> chain;  // the last one runs first
  const auto ask = [&](ValueIndex index) {
    if (adopt(values_[index])) return;
    TORCH_CHECK(nodes_[values_[index].node].runs_again, "cannot run ", nodes_[values_[index].node].recipe->info->name,
                " again: ", nodes_[values_[index].node].reason);
    chain.push_back(values_[index].node);
  };
  ask(wanted);
  asked_ = moment();
  while (!chain.empty()) {
    const NodeIndex index = chain.back();
    const Node& node = nodes_[index];
    if (settled_) update(index);  // what it reads is needed from here on
    const bool missing = std::any_of(node.made.begin(), node.made.end(), [&](const Made& made) {
      return !values_[made.value].present.has_value() && (values_[made.value].needed() || !settled_);
    });
    if (!missing) {  // two of the chain needed it
      chain.pop_back();
      continue;
    }
    const size_t before = chain.size();
    for (const Argument& argument : node.tensors) {
      if (argument.value != kNone) ask(argument.value);
    }
    if (chain.size() > before) continue;
    chain.pop_back();
    run(index);
    if (demanded) ++replays_.on_demand;
  }
  pending_.push_back(values_[wanted].node);
  settle();
}

int64_t Tape::replay(const std::vector<NodeIndex>& nodes, const std::vector<Result>& but) {
  const Held held(*this);
  int64_t ran = 0;
  for (const NodeIndex index : nodes) {
    TORCH_CHECK_INDEX(index >= 0 && static_cast<size_t>(index) < nodes_.size(), "node ", index, " of a tape of ",
                      nodes_.size(), " nodes: give one of them");
    Node& node = nodes_[index];
    if (!node.wants) continue;
    bool there = node.runs_again;
    for (const Argument& argument : node.tensors) {
      there = there && (argument.value == kNone || adopt(values_[argument.value]));
    }
    bool missing = false;
    for (size_t place = 0; place < node.made.size() && !missing; ++place) {
      Value& value = values_[node.made[place].value];
      missing = value.needed() && !is_among(but, index, place) && !adopt(value);
    }
    if (missing && there) {
      asked_ = moment();
      run(index, but);
      ++ran;
    } else if (missing) {
      ++replays_.left_out;
    }
    pending_.push_back(index);
    settle();
  }
  replays_.ahead += ran;
  return ran;
}

// Whether the node could run now: what it reads is there, or made by nodes that could. One that made two results may
// live by one of them, and have forgotten what the other is made from.
bool Tape::can_run_again(NodeIndex wanted) const {
  std::vector<NodeIndex> left{wanted};
  std::vector<bool> seen(nodes_.size(), false);
  while (!left.empty()) {
    const NodeIndex index = left.back();
    left.pop_back();
    if (seen[index]) continue;
    seen[index] = true;
    const Node& node = nodes_[index];
    if (node.closed || !node.runs_again || changed_argument(node).has_value()) return false;
    for (const Argument& argument : node.tensors) {
      if (argument.value == kNone) continue;
      const Value& value = values_[argument.value];
      if (nodes_[value.node].closed) return false;
      if (!value.present.has_value()) left.push_back(value.node);
    }
  }
  return true;
}

void Tape::drop(const std::vector<NodeIndex>& nodes, const std::vector<Result>& but) {
  const Held held(*this);
  for (const NodeIndex index : nodes) {
    const Node& node = nodes_.at(static_cast<size_t>(index));
    if (!can_run_again(index)) continue;
    for (size_t place = 0; place < node.made.size(); ++place) {
      if (!is_among(but, index, place)) values_[node.made[place].value].present.reset();
    }
  }
  if (settled_) settle_all();
}

void Tape::begin_retained() {
  const Held held(*this);
  if (recording_ || retaining_) return;
  retaining_ = true;
  note(Happened::kRetain, kNone);
}

// What a backward pass has written stays as it is: the next one is told so, as without a tape.
void Tape::end_retained() {
  const Held held(*this);
  if (!retaining_) return;
  std::vector<bool> again;  // by node, as `can_run_again`, but that what it reads may not be spoilt
  for (const Node& node : nodes_) {
    again.push_back(!node.closed && node.runs_again && !changed_argument(node).has_value() &&
                    std::all_of(node.tensors.begin(), node.tensors.end(), [&](const Argument& argument) {
                      if (argument.value == kNone) return true;
                      const Value& value = values_[argument.value];
                      const auto maker = static_cast<size_t>(value.node);
                      return !nodes_[value.node].closed && !value.spoilt() &&
                             (value.present.has_value() || again[maker]);
                    }));
    const bool spoilt =
        std::any_of(node.made.begin(), node.made.end(), [&](const Made& made) { return values_[made.value].spoilt(); });
    if ((node.stored != kNothing && node.stored != kRead) || spoilt || !again.back()) continue;
    for (const Made& made : node.made) {
      if (!stays(values_[made.value])) values_[made.value].present.reset();
    }
  }
  retaining_ = false;
  settle_all();
  note(Happened::kRetained, kNone);
}

// The place of an argument that is not the region's and was changed in place since.
std::optional<size_t> Tape::changed_argument(const Node& node) const {
  for (size_t place = 0; place < node.tensors.size(); ++place) {
    const Argument& argument = node.tensors[place];
    if (argument.value != kNone || argument.secret) continue;
    if (argument.outside.has_value()) {
      if (argument.counter.enabled() && argument.counter.current_version() != argument.version) return argument.place;
      continue;
    }
    const at::Tensor tensor = node.tensor(place);
    c10::TensorImpl* body = tensor.unsafeGetTensorImpl();
    if (!body->is_inference() && body->version_counter().current_version() != argument.version) return argument.place;
  }
  return std::nullopt;
}

// The arguments, with what is here in the places of values. A storage that the node writes is its own from now on.
torch::jit::Stack Tape::stack_of(Node& node, std::vector<c10::Storage>& written) {
  const std::optional<size_t> changed = changed_argument(node);
  TORCH_CHECK(!changed.has_value(), "cannot run ", node.recipe->info->name, " again: its argument ", *changed,
              " was changed in place since. Store its result, or put the change into the region");
  Node call;
  call.tensors = node.tensors;
  for (const c10::IValue& value : node.arguments) call.arguments.push_back(with_own_list(value));
  std::vector<std::pair<ValueIndex, c10::Storage>> own;
  for (const Argument& argument : node.tensors) {
    TORCH_CHECK(argument.value == kNone || !values_[argument.value].spoilt(), "cannot run ", node.recipe->info->name,
                " again: a backward pass has written what it reads. Store its result, or write a copy");
  }
  for (size_t place = 0; place < node.tensors.size(); ++place) {
    const Argument& argument = node.tensors[place];
    if (argument.value == kNone || !argument.written) continue;
    Value& value = values_[argument.value];
    // A graph of second order may hold what it was given, too.
    const bool others = value.saved > 0 || value.readers > 1 || !settled_ || retaining_ || value.latest ||
                        value.present->use_count() > 1;
    own.emplace_back(argument.value, others ? copy_of(*value.present) : *value.present);
    if (!others) {
      value.present.reset();
      pending_.push_back(value.node);
    }
  }
  const auto storage_of = [&](ValueIndex index) -> const c10::Storage& {
    for (const auto& [value, storage] : own) {
      if (value == index) return storage;
    }
    return *values_[index].present;
  };
  written.resize(node.tensors.size());
  for (size_t place = 0; place < node.tensors.size(); ++place) {
    const Argument& argument = node.tensors[place];
    if (argument.value != kNone) {
      if (stream_.has_value()) used_by(storage_of(argument.value), *stream_);
      if (argument.written) written[place] = storage_of(argument.value);
      call.set_tensor(place, argument.geometry.on(storage_of(argument.value)));
    } else if (argument.secret) {
      const at::Tensor tensor = node.tensor(place);
      call.set_tensor(place, Geometry::of(tensor).on(copy_of(tensor.storage())));
    } else if (argument.outside.has_value()) {
      if (stream_.has_value()) used_by(*argument.outside, *stream_);
      call.set_tensor(place, node.tensor(place));
    }
  }
  return std::move(call.arguments);
}

// What is left as it is goes when the operator has run.
void Tape::run(NodeIndex index, const std::vector<Result>& but) {
  note(Happened::kRun, index);
  Node& node = nodes_[index];
  const Below below;
  const c10::AutoGradMode gradients(node.gradients);
  const OnStreamOfRegion stream(stream_);
  std::vector<c10::Storage> written;
  torch::jit::Stack stack = stack_of(node, written);
  {
    const RandomState* state = node.random_state == kNone ? nullptr : &random_states_[node.random_state];
    const RandomNumbers numbers(state, stack, device_);
    node.recipe->op->callBoxed(stack);
  }
  for (size_t place = 0; place < node.made.size(); ++place) {
    const Made& made = node.made[place];
    Value& value = values_[made.value];
    if (value.present.has_value() || (settled_ && !value.needed()) || is_among(but, index, place)) continue;
    if (made.result == kNone) {
      value.present = written[made.argument];
      value.given = {};
    } else {
      at::Tensor element;
      const at::Tensor& result = result_of(stack, made, element);
      if (node.recipe->info->communicates) wait_for(result);
      TORCH_CHECK(static_cast<int64_t>(result.storage().nbytes()) >= value.bytes, node.recipe->info->name, " made ",
                  value.bytes, " bytes and makes ", result.storage().nbytes(), " when it is run again");
      value.present = result.storage();
      value.given = {};
    }
  }
  pending_.push_back(index);
  settle();
  note(Happened::kRan, index);
  if (!timed_) return;
  const Moment ended = moment();
  again_.push_back({index, asked_, ended});
  asked_ = ended;
}

}  // namespace bayplan::recompute

// Recording: what each operator of a region read, made and wrote. One file: an operator's node, from its arguments to
// what is stored of its results.
#include <ATen/Context.h>

#include <chrono>

#include "follow/demand.h"
#include "profiler/storages.h"
#include "recompute/tape.h"

namespace bayplan::recompute {
namespace {

at::Generator generator_of(c10::ArrayRef<c10::IValue> inputs, c10::Device device) {
  for (const c10::IValue& value : inputs) {
    if (value.isGenerator()) return value.toGenerator();
  }
  return at::globalContext().defaultGenerator(device);
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

}  // namespace

void Tape::open_node(const Recipe& recipe) {
  note(Happened::kNode, static_cast<NodeIndex>(nodes_.size()));
  Node& node = nodes_.next();
  node.recipe = &recipe;
  node.gradients = c10::GradMode::is_enabled();
  if (!stream_.has_value()) return;
  current_ = current_stream();
  if (*current_ != *stream_) store_->see(*current_);
}

void Tape::begin_node() {
  paused_ = false;
  Node& node = nodes_.open();
  const Recipe& recipe = *node.recipe;
  if (recipe.may_write) refuse_what_it_writes(node);
  if (stream_.has_value() && *current_ != *stream_) {
    node.refuse("it runs on another stream than the region began on");
  }
  if (recipe.may_write) {
    keep_what_cannot_run_again(node);
    keep_what_it_writes(node);
  }
  if (recipe.random && draws(recipe, node.arguments)) {
    node.random_state = static_cast<int32_t>(random_states_.size());
    random_states_.emplace_back(generator_of(node.arguments, device_));
  }
  if (timed_ && stream_.has_value()) node.begin_mark = marks_.mark(*stream_);
  if (timed_) node.begin_ns = host_ns();
}

void Tape::add_argument(const at::Tensor& tensor) {
  Node& node = nodes_.open();
  const size_t place = node.arguments.size();
  c10::IValue& own = node.arguments.emplace_back();
  if (!tensor.defined()) {
    own = tensor;
  } else if (at::Tensor kept = add_tensor(node, place, kNone, tensor); kept.defined()) {
    own = std::move(kept);
  }
}

void Tape::add_argument(const std::optional<at::Tensor>& tensor) {
  if (tensor.has_value()) return add_argument(*tensor);
  nodes_.open().arguments.emplace_back();
}

void Tape::add_argument(const c10::IValue& value) {
  if (value.isTensor()) return add_argument(value.toTensor());
  Node& node = nodes_.open();
  const size_t place = node.arguments.size();
  c10::IValue& own_value = node.arguments.emplace_back();
  if (!value.isPtrType()) {
    own_value = value;
  } else if (value.isTensorList()) {  // a list of its own: the caller's is not the tape's to change
    c10::List<at::Tensor> own;
    int32_t element = 0;
    for (const at::Tensor& tensor : value.toTensorList()) {
      own.push_back(tensor.defined() ? add_tensor(node, place, element, tensor) : tensor);
      ++element;
    }
    own_value = std::move(own);
  } else if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> own;
    int32_t element = 0;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorList().vec()) {
      const bool is_one = tensor.has_value() && tensor->defined();
      own.push_back(is_one ? std::optional<at::Tensor>(add_tensor(node, place, element, *tensor)) : tensor);
      ++element;
    }
    own_value = std::move(own);
  } else {
    own_value = value;
  }
}

// What the node keeps of the tensor: nothing of a value, which it names.
at::Tensor Tape::add_tensor(Node& node, size_t place, int32_t element, const at::Tensor& tensor) {
  Argument& argument = node.tensors.emplace_back();
  argument.place = static_cast<uint8_t>(place);
  argument.element = element;
  argument.written = node.recipe->writes.has(place);
  const c10::Storage* storage = plain_storage_on(device_, tensor);
  if (paused_ && storage != nullptr) swap::bring_in_if_out(*storage->unsafeGetStorageImpl());
  if (storage != nullptr && stream_.has_value()) used_by(*storage, *current_);
  argument.value = find(storage);
  if (argument.value != kNone && nodes_[values_[argument.value].node].recipe->allocates &&
      !node.recipe->overwrites.has(place)) {
    written_by_others(*storage);  // somebody may have filled it, and no operator told
    argument.value = kNone;
  }
  if (argument.value != kNone) {
    argument.geometry.set(tensor);
    return at::Tensor();
  }
  return add_outside(argument, tensor, storage);
}

void Tape::refuse_what_it_writes(Node& node) {
  const Recipe& recipe = *node.recipe;
  const bool secretly = !recipe.secretly_if.has_value() || is_true(node.arguments, *recipe.secretly_if);
  for (Argument& argument : node.tensors) {
    if (!secretly || !recipe.secret_writes.has(argument.place)) continue;
    argument.secret = argument.value == kNone;
    if (argument.value != kNone) node.refuse("it writes in secret what the region has made");
  }
  for (const Argument& argument : node.tensors) {
    if (argument.written && argument.value == kNone) node.refuse("it writes a tensor that is not the region's");
  }
  if (recipe.communicates_in_place) node.refuse("it communicates in place");
}

void Tape::close_node() {
  Node& own = nodes_.open();
  if (timed_) own.end_ns = host_ns();
  if (timed_ && stream_.has_value()) own.end_mark = marks_.mark(*stream_);
  nodes_.add();
}

void Tape::add_results(int32_t result, const c10::IValue& value) {
  for_each_element(value, [&](int32_t element, const at::Tensor& tensor) { add_result(result, element, tensor); });
}

void Tape::end_node() {
  const auto index = static_cast<NodeIndex>(nodes_.size() - 1);
  Node& own = nodes_.back();
  if (own.recipe->may_write) add_written(own);
  for (const Argument& argument : own.tensors) {  // a writer that told nobody
    if (!own.recipe->secret_writes.any()) break;
    if (!own.recipe->secret_writes.has(argument.place) || argument.value == kNone) continue;
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

void Tape::add_result(int32_t result, int32_t element, const at::Tensor& tensor) {
  // A subclass (a collective's result that nobody has waited for) has a storage without bytes; its tensor is seen
  // inside.
  const c10::Storage* storage = plain_storage_on(device_, tensor);
  if (storage == nullptr || storage->nbytes() == 0) return;
  const Address address = storage->unsafeGetStorageImpl();
  const auto index = static_cast<NodeIndex>(nodes_.size() - 1);
  for (auto read = outside_reads_.rbegin(); read != outside_reads_.rend() && read->node == index; ++read) {
    if (read->storage == address) return;
  }
  const auto value = static_cast<ValueIndex>(values_.size());
  if (!latest_.emplace(address, value).second) return;
  make_value(value, index, tensor, *storage);
  nodes_.back().made.push_back({value, result, element, 0});
}

bool Tape::is_given(const c10::Storage& storage) const {
  const auto index = static_cast<NodeIndex>(nodes_.size());
  for (auto read = outside_reads_.rbegin(); read != outside_reads_.rend() && read->node == index; ++read) {
    if (read->storage == storage.unsafeGetStorageImpl()) return true;
  }
  return false;
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

void Tape::make_value(ValueIndex index, NodeIndex node, const at::Tensor& tensor, const c10::Storage& storage) {
  Value& value = values_.emplace_back(node, storage);
  c10::TensorImpl* body = tensor.unsafeGetTensorImpl();
  value.counted = !body->is_inference();
  if (value.counted) {
    value.counter = body->version_counter();
    value.version = value.counter.current_version();
  }
  if (log_ != nullptr) log_->follow(log_number_, index, storage);
}

void Tape::apply_policy(Node& node, NodeIndex index) {
  const auto place = static_cast<size_t>(index);
  const auto& names = policy_->names;
  const bool expected = names.empty() || (place < names.size() && names[place] == node.recipe->info->name);
  if (!diverged_at_.has_value() && !expected) diverged_at_ = index;
  if (!node.runs_again) {
    node.stored = kAll;
  } else if (diverged_at_.has_value()) {
    node.stored = node.recipe->info->communicates ? kAll : kNothing;
  } else if (place < policy_->store.size()) {
    node.stored = policy_->store[place];
  } else {
    node.stored = policy_->store_others || node.recipe->info->communicates ? kAll : kNothing;
  }
  const bool may_go = node.stored != kNothing && node.runs_again && !node.recipe->info->communicates;
  if (policy_->most_bytes != Policy::kNoLimit && may_go) apply_limit(node);
}

// Sizes may be others than those that the policy was made for: a block stores no more for that.
void Tape::apply_limit(Node& node) {
  int64_t bytes = 0;
  for (const Made& made : node.made) bytes += values_[made.value].bytes;
  asked_bytes_ += bytes;
  if (stored_bytes_ + bytes > policy_->most_bytes) {
    node.stored = kNothing;
  } else {
    stored_bytes_ += bytes;
  }
}

bool Tape::is_current(ValueIndex index, const c10::Storage& storage) {
  Value& value = values_[index];
  const bool same = is_unchanged(value) || is_as_first_found(value);
  value.found = true;
  return same && static_cast<int64_t>(storage.nbytes()) == value.bytes;
}

ValueIndex Tape::look_up(const c10::Storage* storage) {
  if (storage == nullptr) return kNone;
  const auto found = latest_.find(storage->unsafeGetStorageImpl());
  return found != latest_.end() && is_current(found->second, *storage) ? found->second : kNone;
}

ValueIndex Tape::find(const c10::Storage* storage) {
  if (storage == nullptr) return kNone;
  const auto found = latest_.find(storage->unsafeGetStorageImpl());
  if (found == latest_.end()) return kNone;
  if (is_current(found->second, *storage)) return found->second;
  written_by_others(*storage);
  return kNone;
}

bool Tape::is_unchanged(const Value& value) const {
  return !value.counted || value.counter.current_version() == value.version;
}

}  // namespace bayplan::recompute

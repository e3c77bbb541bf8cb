// Recording: what is held, and what is copied before somebody writes it.
#include <algorithm>

#include "profiler/storages.h"
#include "recompute/tape.h"

namespace bayplan::recompute {

// What the node keeps of a tensor that is not the region's.
at::Tensor Tape::add_outside(Argument& argument, const at::Tensor& tensor, const c10::Storage* storage) {
  c10::TensorImpl* body = tensor.unsafeGetTensorImpl();
  const bool counted = !body->is_inference();
  if (counted) argument.version = body->version_counter().current_version();
  if (body->has_storage() && !body->is_wrapped_number()) {  // of another device, too
    outside_reads_.push_back({body->unsafe_storage().unsafeGetStorageImpl(), static_cast<NodeIndex>(nodes_.size()),
                              nodes_.open().tensors.size() - 1});
  }
  if (log_ != nullptr && storage != nullptr) log_->read(*storage);
  if (storage == nullptr || !counted) return without_history(tensor);
  argument.geometry.set(tensor);
  argument.outside = *storage;
  argument.counter = body->version_counter();
  return at::Tensor();
}

void Tape::keep_what_it_writes(Node& node) {
  const auto own = static_cast<NodeIndex>(nodes_.size());
  std::vector<Address> written;
  for (auto read = outside_reads_.rbegin(); read != outside_reads_.rend() && read->node == own; ++read) {
    const Argument& argument = node.tensors[read->argument];
    if (argument.written || argument.secret || node.recipe->communicates_in_place) written.push_back(read->storage);
  }
  for (const Address storage : written) keep_old_content(storage);
}

// What the region made and cannot make again is about to be written: its writer is stored, and who has read it keeps
// the content from before.
void Tape::keep_what_cannot_run_again(Node& node) {
  for (const Argument& argument : node.tensors) {
    if (argument.value == kNone || !(argument.written || node.recipe->communicates_in_place)) continue;
    if (nodes_[values_[argument.value].node].runs_again) continue;
    node.refuse("it writes over what cannot be made again");
    keep_for_readers(argument.value);
  }
}

void Tape::keep_for_readers(ValueIndex index) {
  Value& value = values_[index];
  if (nodes_[value.node].runs_again || value.copied) return;
  // A reader that is stored counts, too: what it made may be written, and then it runs again.
  const bool read = std::any_of(nodes_.begin() + value.node, nodes_.end(), [&](const Node& node) {
    return std::any_of(node.tensors.begin(), node.tensors.end(),
                       [&](const Argument& argument) { return argument.value == index; });
  });
  const auto held = value.storage.lock();
  if (!read || !held) return;
  value.present = copy_of(c10::Storage(held));
  value.copied = true;
  ++replays_.copies;
}

void Tape::begin_write(const at::Tensor& tensor, const std::string& name) {
  const c10::Storage* storage = plain_storage_on(device_, tensor);
  if (storage == nullptr) return;
  const ValueIndex value = find(storage);
  if (value == kNone) return keep_old_content(storage->unsafeGetStorageImpl());
  const OperatorInfo* info = name.empty() ? nullptr : find_operator(name);
  const Recipe* recipe = info == nullptr ? nullptr : make_recipe(*info);
  if (recipe != nullptr && !nodes_[values_[value].node].recipe->allocates) {
    return add_collective(*recipe, value, tensor);
  }
  keep_for_readers(value);
  written_by_others(*storage);
}

// A group that is no dispatcher operator writes what the region made: a node like c10d's own, which never runs again.
void Tape::add_collective(const Recipe& recipe, ValueIndex value, const at::Tensor& tensor) {
  Node& node = nodes_.next();
  node.recipe = &recipe;
  node.arguments.emplace_back(at::Tensor());
  Argument argument;
  argument.value = value;
  argument.geometry = Geometry::of(tensor);
  argument.written = true;
  node.tensors.push_back(std::move(argument));
  node.refuse("it communicates in place");
  keep_what_cannot_run_again(node);
  if (timed_ && stream_.has_value()) node.begin_mark = node.end_mark = marks_.mark(*stream_);
  const auto index = static_cast<NodeIndex>(nodes_.size());
  note(Happened::kNode, index);
  nodes_.add();
  add_written(node);
  apply_policy(node, index);
  note(Happened::kMade, index);
}

void Tape::add_group(const std::string& name) {
  if (!name.empty() && std::find(groups_.begin(), groups_.end(), name) == groups_.end()) groups_.push_back(name);
}

// What a collective leaves is stored as its first reader finds it: Functions that say what they wrote (`mark_dirty`)
// count it as changed once more, after the collective.
bool Tape::is_as_first_found(Value& value) {
  const bool first = nodes_[value.node].recipe->communicates_in_place && !value.found && value.saved == 0;
  if (first && value.counted) value.version = value.counter.current_version();
  return first;
}

// Somebody else's tensor is about to change, and nodes that may run again have read it: they get a copy.
void Tape::keep_old_content(Address storage) {
  std::optional<c10::Storage> copy;
  const auto own = static_cast<NodeIndex>(nodes_.size());
  for (OutsideRead& read : outside_reads_) {
    if (read.storage != storage || read.node == own || read.node == kNone) continue;
    Node& node = nodes_[read.node];
    if (node.stored == kAll || node.tensors[read.argument].secret) continue;
    const at::Tensor tensor = node.tensor(read.argument);
    if (!copy.has_value()) copy = copy_of(tensor.storage());
    node.set_outside(read.argument, *copy);
    read.node = kNone;
    ++replays_.copies;
  }
}

// Autograd tells those who saved the old content that it is gone. Where the writer hid, they see the new.
void Tape::rewritten(Value& value, const c10::Storage& storage) {
  value.latest = false;
  if (!value.copied) value.present.reset();
  if (value.saved > 0 && is_unchanged(value)) value.shown = storage;
}

void Tape::hold(Value& value) const {
  if (value.present.has_value() || !value.latest) return;
  if (const auto held = value.storage.lock()) value.present = c10::Storage(held);
}

// What is stored beyond what autograd saves: what a node reads that may run again. Held from its first reader on, not
// from its maker on: what nobody reads so is let go as without a tape.
void Tape::hold_what_it_reads(const Node& node) {
  for (const Argument& argument : node.tensors) {
    if (argument.value == kNone) continue;
    const Node& maker = nodes_[values_[argument.value].node];
    const bool kept = maker.stored == kAll || maker.stored == kRead;
    if (kept && (node.stored != kAll || !maker.runs_again)) hold(values_[argument.value]);
  }
}

void Tape::written_by_others(const c10::Storage& storage) {
  const auto found = latest_.find(storage.unsafeGetStorageImpl());
  if (found == latest_.end()) return;
  rewritten(values_[found->second], storage);
  latest_.erase(found);
}

}  // namespace bayplan::recompute

#include "recompute/node.h"

#include <ATen/core/TensorBody.h>

namespace bayplan::recompute {

Geometry Geometry::of(const at::Tensor& tensor) {
  Geometry geometry;
  geometry.set(tensor);
  return geometry;
}

void Geometry::set(const at::Tensor& tensor) {
  const c10::IntArrayRef sizes = tensor.sizes(), strides = tensor.strides();
  const size_t dimensions = sizes.size();
  extents.resize_for_overwrite(2 * dimensions);
  int64_t* const all = extents.data();
  for (size_t place = 0; place < dimensions; ++place) {  // fewer than what a call that moves memory takes to begin
    all[place] = sizes[place];
    all[dimensions + place] = strides[place];
  }
  offset = tensor.storage_offset();
  dtype = tensor.scalar_type();
  keys = tensor.unsafeGetTensorImpl()->key_set();
}

at::Tensor without_history(const at::Tensor& tensor) {
  c10::TensorImpl* body = tensor.unsafeGetTensorImpl();
  if (body->autograd_meta() == nullptr || body->is_inference()) return tensor;
  return at::Tensor(body->shallow_copy_and_detach(body->version_counter(), /*allow_tensor_metadata_change=*/false));
}

at::Tensor Geometry::on(const c10::Storage& storage) const {
  at::Tensor tensor =
      at::detail::make_tensor<c10::TensorImpl>(c10::Storage(storage), keys, c10::scalarTypeToTypeMeta(dtype));
  const c10::IntArrayRef all(extents);
  const size_t dimensions = all.size() / 2;
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(all.slice(0, dimensions), all.slice(dimensions), offset);
  return tensor;
}

at::Tensor Node::tensor(size_t index) const {
  const Argument& argument = tensors[index];
  if (argument.outside.has_value()) return argument.geometry.on(*argument.outside);
  const c10::IValue& value = arguments[argument.place];
  if (argument.element == kNone) return value.toTensor();
  if (value.isTensorList()) return value.toTensorList().get(argument.element);
  return *value.toOptionalTensorList().get(argument.element);
}

void Node::set_tensor(size_t index, const at::Tensor& tensor) {
  const Argument& argument = tensors[index];
  c10::IValue& value = arguments[argument.place];
  if (argument.element == kNone) {
    value = tensor;
  } else if (value.isTensorList()) {
    value.toTensorList().set(argument.element, tensor);
  } else {
    value.toOptionalTensorList().set(argument.element, tensor);
  }
}

void Node::set_outside(size_t index, const c10::Storage& storage) {
  Argument& argument = tensors[index];
  if (argument.outside.has_value()) {
    argument.outside = storage;
    argument.counter = c10::VariableVersion();
  } else {
    set_tensor(index, Geometry::of(tensor(index)).on(storage));
  }
  argument.version = 0;
}

void Node::let_go() {
  arguments.clear();
  for (Argument& argument : tensors) argument.outside.reset();
}

void Node::clear() {
  static_cast<NodeFacts&>(*this) = {};
  arguments.clear();
  tensors.clear();
  made.clear();
}

Node& Nodes::at(size_t index) {
  TORCH_CHECK_INDEX(index < count_, "node ", index, " of a tape of ", count_, " nodes: give one of them");
  return all_[index];
}

Node& Nodes::next() {
  if (count_ == all_.size()) {
    all_.emplace_back();
  } else if (all_[count_].recipe != nullptr) {
    all_[count_].clear();  // the one before failed as it began
  }
  return all_[count_];
}

void Nodes::take_back() { all_[--count_].clear(); }

void Nodes::clear() {
  const size_t began = count_ < all_.size() && all_[count_].recipe != nullptr ? count_ + 1 : count_;
  for (size_t index = 0; index < began; ++index) all_[index].clear();
  count_ = 0;
}

}  // namespace bayplan::recompute

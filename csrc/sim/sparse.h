// Sparse tensors (COO) of device sim, as sparse gradients are: their indices and values are tensors of sim.
#pragma once
#include <ATen/SparseTensorImpl.h>
#include <ATen/core/Tensor.h>
#include <torch/library.h>

namespace sim {

inline at::SparseTensorImpl& sparse_impl(const at::Tensor& tensor) {
  return *static_cast<at::SparseTensorImpl*>(tensor.unsafeGetTensorImpl());
}

// Shows the dense tensors that an operand is made of: itself, or a sparse one's indices and values.
template <typename F>
void for_each_part(const at::Tensor& tensor, F&& visit) {
  if (!tensor.defined() || tensor.layout() != c10::Layout::Sparse) return visit(tensor);
  visit(sparse_impl(tensor).indices_);
  visit(sparse_impl(tensor).values_);
}

// A sparse tensor with the shape of another, of the key's device, made of these parts.
at::Tensor sparse_like(const at::Tensor& like, c10::DispatchKey key, const at::Tensor& indices,
                       const at::Tensor& values);

// Gives a sparse tensor the shape of another, and other parts.
void rebuild(const at::Tensor& tensor, const at::Tensor& like, const at::Tensor& indices, const at::Tensor& values);

// Operators that only describe or move the parts. All others run on the CPU's kernels for sparse tensors.
void register_sparse(torch::Library& sparse);

}  // namespace sim

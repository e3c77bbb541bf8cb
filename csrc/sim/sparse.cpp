#include "sim/sparse.h"

#include <ATen/ops/_coalesced_native.h>
#include <ATen/ops/_indices_native.h>
#include <ATen/ops/_nnz_native.h>
#include <ATen/ops/_sparse_coo_tensor_with_dims_and_tensors_native.h>
#include <ATen/ops/_sparse_coo_tensor_with_dims_native.h>
#include <ATen/ops/_values_native.h>
#include <ATen/ops/clone_native.h>
#include <ATen/ops/copy_native.h>
#include <ATen/ops/copy_sparse_to_sparse_native.h>
#include <ATen/ops/dense_dim_native.h>
#include <ATen/ops/empty_like_native.h>
#include <ATen/ops/empty_native.h>
#include <ATen/ops/indices_native.h>
#include <ATen/ops/is_coalesced_native.h>
#include <ATen/ops/permute_native.h>
#include <ATen/ops/resize_as_sparse_native.h>
#include <ATen/ops/sparse_dim_native.h>
#include <ATen/ops/sparse_resize_and_clear_native.h>
#include <ATen/ops/sparse_resize_native.h>
#include <ATen/ops/unsqueeze_native.h>
#include <ATen/ops/values_native.h>
#include <ATen/ops/zero_native.h>
#include <ATen/record_function.h>

#include "sim/devices.h"

namespace sim {
namespace {

using OptionalDtype = std::optional<at::ScalarType>;
using OptionalLayout = std::optional<at::Layout>;
using OptionalDevice = std::optional<at::Device>;

size_t named(const OptionalDevice& device) { return device_at(device ? device->index() : -1); }

at::Tensor empty(at::IntArrayRef size, OptionalDtype dtype, OptionalLayout layout, OptionalDevice device,
                 std::optional<bool> pin, std::optional<at::MemoryFormat> format) {
  const OnDevice on(named(device));
  return at::native::empty_sparse(size, dtype, layout, device, pin, format);
}

at::Tensor with_dims(int64_t sparse_dim, int64_t dense_dim, at::IntArrayRef size, OptionalDtype dtype,
                     OptionalLayout layout, OptionalDevice device, std::optional<bool> pin) {
  const OnDevice on(named(device));
  return at::native::new_with_dims_sparse(sparse_dim, dense_dim, size, dtype, layout, device, pin);
}

at::Tensor with_tensors(int64_t sparse_dim, int64_t dense_dim, c10::SymIntArrayRef size, const at::Tensor& indices,
                        const at::Tensor& values, OptionalDtype dtype, OptionalLayout layout, OptionalDevice device,
                        std::optional<bool> pin, std::optional<bool> coalesced) {
  const OnDevice on(named(device));
  return at::native::new_with_dims_and_tensor_sparse_symint(sparse_dim, dense_dim, size, indices, values, dtype, layout,
                                                            device, pin, coalesced);
}

}  // namespace

void rebuild(const at::Tensor& tensor, const at::Tensor& like, const at::Tensor& indices, const at::Tensor& values) {
  at::SparseTensorImpl &impl = sparse_impl(tensor), &shape = sparse_impl(like);
  impl.raw_resize_(shape.sparse_dim(), shape.dense_dim(), shape.sizes());
  impl.set_indices_and_values_unsafe(indices, values);
  impl.set_coalesced(shape.coalesced());
}

at::Tensor sparse_like(const at::Tensor& like, c10::DispatchKey key, const at::Tensor& indices,
                       const at::Tensor& values) {
  at::DisableRecordFunctionGuard silent;  // It is made empty first, which is no operator of the program.
  auto tensor = at::detail::make_tensor<at::SparseTensorImpl>(c10::DispatchKeySet(key), like.dtype());
  rebuild(tensor, like, indices, values);
  return tensor;
}

void register_sparse(torch::Library& sparse) {
  sparse.impl("_indices", TORCH_FN(at::native::_indices_sparse));
  sparse.impl("_values", TORCH_FN(at::native::_values_sparse));
  sparse.impl("indices", TORCH_FN(at::native::indices_sparse));
  sparse.impl("values", TORCH_FN(at::native::values_sparse));
  sparse.impl("_nnz", TORCH_FN(at::native::_nnz_sparse));
  sparse.impl("is_coalesced", TORCH_FN(at::native::is_coalesced_sparse));
  sparse.impl("_coalesced_", TORCH_FN(at::native::_coalesced_sparse_));
  sparse.impl("sparse_dim", TORCH_FN(at::native::sparse_dim_sparse));
  sparse.impl("dense_dim", TORCH_FN(at::native::dense_dim_sparse));
  sparse.impl("_dimI", TORCH_FN(at::native::sparse_dim_sparse));
  sparse.impl("_dimV", TORCH_FN(at::native::dense_dim_sparse));
  sparse.impl("_sparse_coo_tensor_with_dims", TORCH_FN(with_dims));
  sparse.impl("_sparse_coo_tensor_with_dims_and_tensors", TORCH_FN(with_tensors));
  sparse.impl("empty.memory_format", TORCH_FN(empty));
  sparse.impl("empty_like", TORCH_FN(at::native::empty_like_sparse_coo));
  sparse.impl("permute", TORCH_FN(at::native::permute_sparse_coo));
  sparse.impl("unsqueeze", TORCH_FN(at::native::unsqueeze_sparse));
  sparse.impl("clone", TORCH_FN(at::native::clone_sparse));
  sparse.impl("copy_", TORCH_FN(at::native::copy_sparse_wrapper_));
  sparse.impl("copy_sparse_to_sparse_", TORCH_FN(at::native::copy_sparse_));
  sparse.impl("sparse_resize_", TORCH_FN(at::native::sparse_resize_));
  sparse.impl("sparse_resize_and_clear_", TORCH_FN(at::native::sparse_resize_and_clear_));
  sparse.impl("resize_as_sparse_", TORCH_FN(at::native::resize_as_sparse_));
  sparse.impl("zero_", TORCH_FN(at::native::zero_sparse_));
}

}  // namespace sim

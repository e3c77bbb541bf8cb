#include "sim/ops.h"

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/_fused_sdp_choice.h>
#include <ATen/ops/_lazy_clone_native.h>
#include <ATen/ops/_linalg_check_errors_native.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/_scaled_dot_product_attention_math.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/any.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/histc.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/view_native.h>
#include <ATen/ops/zeros_like.h>
#include <ATen/record_function.h>

#include <cstring>
#include <limits>

#include "sim/alias.h"
#include "sim/copy_on_write.h"
#include "sim/device_memory.h"
#include "sim/kernel_call.h"
#include "sim/shapes.h"
#include "sim/transfer.h"

namespace sim {
namespace {

using c10::SymIntArrayRef;
using OptionalDtype = std::optional<at::ScalarType>;
using OptionalLayout = std::optional<at::Layout>;
using OptionalDevice = std::optional<at::Device>;
using OptionalFormat = std::optional<at::MemoryFormat>;

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

void check_layout(OptionalLayout layout) {
  TORCH_CHECK(c10::layout_or_default(layout) == c10::Layout::Strided, "device sim has no ", *layout,
              " tensors: use strided ones");
}

// The device that the program names, the current one where it names none.
c10::Device named(OptionalDevice device) { return sim_device(device_at(device ? device->index() : -1)); }

// Memory as it is, or filled where the program asks PyTorch to be deterministic.
at::Tensor fresh(at::Tensor tensor) {
  Machine::get().races.raise_found();
  const auto& context = at::globalContext();
  if (context.deterministicAlgorithms() && context.deterministicFillUninitializedMemory())
    at::native::fill_empty_deterministic_(tensor);
  return tensor;
}

at::Tensor empty(SymIntArrayRef sizes, OptionalDtype dtype, OptionalLayout layout, OptionalDevice device,
                 std::optional<bool> /*pin*/, OptionalFormat format) {
  check_layout(layout);
  const OnDevice on(named(device));
  return fresh(at::detail::empty_generic(C10_AS_INTARRAYREF_SLOW(sizes), &DeviceMemory::get(), kKeys,
                                         c10::dtype_or_default(dtype), format));
}

at::Tensor empty_strided(SymIntArrayRef sizes, SymIntArrayRef strides, OptionalDtype dtype, OptionalLayout layout,
                         OptionalDevice device, std::optional<bool> /*pin*/) {
  check_layout(layout);
  const OnDevice on(named(device));
  return fresh(at::detail::empty_strided_generic(C10_AS_INTARRAYREF_SLOW(sizes), C10_AS_INTARRAYREF_SLOW(strides),
                                                 &DeviceMemory::get(), kKeys, c10::dtype_or_default(dtype)));
}

// A tensor of zeros without memory, as derivatives in forward mode have them: an operator that computes with it makes
// them real.
at::Tensor zero_tensor(SymIntArrayRef sizes, OptionalDtype dtype, OptionalLayout layout, OptionalDevice device,
                       std::optional<bool> /*pin*/) {
  check_layout(layout);
  at::native::ZeroTensorAllocator nothing(named(device));
  return at::detail::empty_generic(C10_AS_INTARRAYREF_SLOW(sizes), &nothing,
                                   kKeys | c10::DispatchKeySet(c10::DispatchKey::ZeroTensor),
                                   c10::dtype_or_default(dtype), std::nullopt);
}

at::Tensor as_strided(const at::Tensor& self, SymIntArrayRef sizes, SymIntArrayRef strides,
                      std::optional<c10::SymInt> offset) {
  const auto at = offset ? std::optional<int64_t>(offset->expect_int()) : std::nullopt;
  return at::native::as_strided_tensorimpl(self, C10_AS_INTARRAYREF_SLOW(sizes), C10_AS_INTARRAYREF_SLOW(strides), at);
}

at::Tensor view(const at::Tensor& self, SymIntArrayRef sizes) {
  return at::native::view(self, C10_AS_INTARRAYREF_SLOW(sizes));
}

at::Tensor reshape_alias(const at::Tensor& self, SymIntArrayRef sizes, SymIntArrayRef strides) {
  return at::native::_reshape_alias(self, C10_AS_INTARRAYREF_SLOW(sizes), C10_AS_INTARRAYREF_SLOW(strides));
}

const at::Tensor& resize(const at::Tensor& self, SymIntArrayRef sizes, OptionalFormat format) {
  return at::native::resize_(self, C10_AS_INTARRAYREF_SLOW(sizes), format);
}

at::Tensor& set_storage_at(at::Tensor& self, at::Storage source, c10::SymInt offset, SymIntArrayRef sizes,
                           SymIntArrayRef strides) {
  return at::native::set_storage_cpu_(self, std::move(source), offset.expect_int(), C10_AS_INTARRAYREF_SLOW(sizes),
                                      C10_AS_INTARRAYREF_SLOW(strides));
}

at::Tensor& set_storage(at::Tensor& self, at::Storage source) {
  const auto elements = static_cast<int64_t>(source.nbytes() / self.dtype().itemsize());
  return self.set_(std::move(source), 0, elements, {});
}

at::Tensor& set_tensor(at::Tensor& self, const at::Tensor& source) {
  return self.set_(source.storage(), source.storage_offset(), source.sizes(), source.strides());
}

at::Tensor& set_nothing(at::Tensor& self) {
  const OnDevice on(self.device());
  c10::Storage none(c10::Storage::use_byte_size_t(), 0, DeviceMemory::get().allocate(0), &DeviceMemory::get(), true);
  return self.set_(none, 0, {0}, {});
}

void record_stream(at::Tensor& self, c10::Stream stream) {
  DeviceMemory::get().recordStream(self.storage().data_ptr(), stream);
}

std::optional<at::Tensor> additive_mask(const std::optional<at::Tensor>& mask, caffe2::TypeMeta dtype) {
  if (!mask || !mask->defined() || mask->scalar_type() != at::kBool) return mask;
  auto converted = at::zeros_like(*mask, mask->options().dtype(dtype));
  converted.masked_fill_(mask->logical_not(), -std::numeric_limits<double>::infinity());
  return converted;
}

// The CPU's choice, asked with tensors that look like the program's to it.
int64_t attention_backend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                          const std::optional<at::Tensor>& mask, double dropout, bool causal,
                          std::optional<double> scale, bool grouped) {
  at::DisableRecordFunctionGuard silent;
  auto face = [](const at::Tensor& tensor) {
    return cpu_alias(tensor).requires_grad_(tensor.requires_grad() && at::GradMode::is_enabled());
  };
  std::optional<at::Tensor> mask_face;
  if (mask && mask->defined()) mask_face = face(*mask);
  return at::_fused_sdp_choice(face(query), face(key), face(value), mask_face, dropout, causal, scale, grouped);
}

// PyTorch takes the flash path by device type; this keeps sim on the CPU's.
at::Tensor attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                     const std::optional<at::Tensor>& mask, double dropout, bool causal, std::optional<double> scale,
                     bool grouped) {
  constexpr int64_t kFlash = 1;
  const int64_t backend = attention_backend(query, key, value, mask, dropout, causal, scale, grouped);
  const auto added = additive_mask(mask, query.dtype());
  if (backend == kFlash)
    return std::get<0>(
        at::_scaled_dot_product_flash_attention_for_cpu(query, key, value, dropout, causal, added, scale));
  return std::get<0>(
      at::_scaled_dot_product_attention_math(query, key, value, added, dropout, causal, std::nullopt, scale, grouped));
}

// CUDA counts integers too; as doubles they are exact up to 2^53.
at::Tensor histc(const at::Tensor& self, int64_t bins, const at::Scalar& least, const at::Scalar& most) {
  const bool integers = at::isIntegralType(self.scalar_type(), /*includeBool=*/false);
  const at::Tensor values = integers ? self.to(at::kDouble) : self;
  at::Tensor counts = at::empty({0}, values.options());
  at::histc_out(counts, values, bins, least, most);
  return integers ? counts.to(self.scalar_type()) : counts;
}

// With shapes only nothing has failed: the program looks, and what it reads is a constant.
void check_errors(const at::Tensor& infos, std::string_view api, bool is_matrix) {
  if (shapes_only())
    infos.any().item();
  else
    at::native::_linalg_check_errors(infos, api, is_matrix);
}

// The bytes at the begin of a storage, to name them to the race check.
at::Tensor first_bytes(const c10::Storage& storage, size_t bytes) {
  auto tensor =
      at::detail::make_tensor<c10::TensorImpl>(c10::Storage(storage), kKeys, caffe2::TypeMeta::Make<uint8_t>());
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous({static_cast<int64_t>(bytes)});
  return tensor;
}

}  // namespace

at::Tensor to_sim(const at::Tensor& host) {
  const at::Tensor tensor =
      at::detail::empty_generic(host.sizes(), &DeviceMemory::get(), kKeys, host.scalar_type(), std::nullopt);
  return copy_from(host, tensor, false);
}

void resize_storage(const c10::Storage& storage, size_t bytes) {
  const OnDevice on(storage.device());
  c10::StorageImpl* impl = storage.unsafeGetStorageImpl();
  c10::DataPtr data = DeviceMemory::get().allocate(bytes);
  const size_t kept = std::min(bytes, impl->nbytes());
  if (kept > 0 && impl->data()) {
    KernelCall kernel("resize", Machine::current_stream());
    kernel.touch(first_bytes(storage, kept), kRead);
    kernel.check();
    if (!shapes_only()) std::memcpy(data.get(), impl->data(), kept);
    kernel.finish(OpClass::kCopy, c10::ScalarType::Byte, 0, static_cast<int64_t>(2 * kept));
  }
  replace_bytes(*impl, std::move(data), bytes);
}

void register_ops(torch::Library& device, torch::Library& autograd) {
  device.impl("empty.memory_format", TORCH_FN(empty));
  device.impl("empty_strided", TORCH_FN(empty_strided));
  device.impl("_efficientzerotensor", TORCH_FN(zero_tensor));
  device.impl("_lazy_clone", TORCH_FN(at::native::_lazy_clone));
  device.impl("as_strided", TORCH_FN(as_strided));
  device.impl("view", TORCH_FN(view));
  device.impl("_reshape_alias", TORCH_FN(reshape_alias));
  device.impl("resize_", TORCH_FN(resize));
  device.impl("set_.source_Storage_storage_offset", TORCH_FN(set_storage_at));
  device.impl("set_.source_Storage", TORCH_FN(set_storage));
  device.impl("set_.source_Tensor", TORCH_FN(set_tensor));
  device.impl("set_", TORCH_FN(set_nothing));
  device.impl("record_stream", TORCH_FN(record_stream));
  device.impl("_copy_from", TORCH_FN(copy_from));
  device.impl("_copy_from_and_resize", TORCH_FN(copy_from_and_resize));
  device.impl("_local_scalar_dense", TORCH_FN(local_scalar));
  device.impl("_linalg_check_errors", TORCH_FN(check_errors));
  device.impl("histc", TORCH_FN(histc));
  device.impl("scaled_dot_product_attention", TORCH_FN(attention));
  autograd.impl("scaled_dot_product_attention", TORCH_FN(attention));
}

}  // namespace sim

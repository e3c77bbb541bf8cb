#include "sim/alias.h"

#include <c10/core/CPUAllocator.h>

#include <cstring>

#include "sim/copy_on_write.h"
#include "sim/device_memory.h"
#include "sim/shapes.h"
#include "sim/sparse.h"
#include "sim/temporaries.h"

namespace sim {
namespace {

thread_local bool tls_in_kernel = false;

class KernelAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (!tls_in_kernel && !Watch::is_on_host()) return host_->allocate(bytes);
    if (!tls_in_kernel) {
      void* data = host_->raw_allocate(bytes);
      Watch::allocated(data, bytes);
      return {data, data, &release, c10::Device(c10::kCPU)};
    }
    c10::DataPtr data = DeviceMemory::get().allocate(bytes);
    data.unsafe_set_device(c10::Device(c10::kCPU));
    Watch::allocated(data.get(), bytes);
    return data;
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }

 private:
  static void release(void* address) {
    if (!address) return;
    if (DeviceMemory* memory = DeviceMemory::of(address)) return memory->free(address);
    if (Watch::is_on_host()) Watch::freed_on_host(address);
    c10::GetDefaultCPUAllocator()->raw_deleter()(address);
  }
  c10::Allocator* host_ = c10::GetDefaultCPUAllocator();
};

// Gives a fresh tensor the shape of another, and its lazy conjugation and negation.
at::Tensor shaped_like(const at::Tensor& like, at::Tensor tensor) {
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
  if (impl->is_conj() != like.is_conj()) impl->_set_conj(like.is_conj());
  if (impl->is_neg() != like.is_neg()) impl->_set_neg(like.is_neg());
  return tensor;
}

at::Tensor alias_in(c10::Storage storage, const at::Tensor& like) {
  const auto key = storage.device().is_meta() ? c10::DispatchKey::Meta : c10::DispatchKey::CPU;
  auto alias = shaped_like(
      like, at::detail::make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(key), like.dtype()));
  if (like.unsafeGetTensorImpl()->is_wrapped_number()) alias.unsafeGetTensorImpl()->set_wrapped_number(true);
  return alias;
}

// Where the tensor's storage has its bytes; throws with the owner's own message if it was swapped out.
void* require_memory(const at::Tensor& tensor) {
  void* data = const_cast<void*>(tensor.storage().unsafeGetStorageImpl()->data());
  TORCH_CHECK(data || tensor.numel() == 0, "a kernel of device sim touches a tensor of ", tensor.numel(),
              " elements whose storage holds no memory: resize its storage before using it");
  return data;
}

}  // namespace

at::Tensor alias_over(void* data, size_t bytes, const at::Tensor& like) {
  return alias_in(c10::Storage(c10::Storage::use_byte_size_t(), bytes, c10::DataPtr(data, c10::Device(c10::kCPU)),
                               InKernel::allocator(), /*resizable=*/true),
                  like);
}

InKernel::InKernel() : outer_(tls_in_kernel) { tls_in_kernel = true; }
InKernel::~InKernel() { tls_in_kernel = outer_; }

OutsideKernel::OutsideKernel() : inside_(tls_in_kernel) { tls_in_kernel = false; }
OutsideKernel::~OutsideKernel() { tls_in_kernel = inside_; }

c10::Allocator* InKernel::allocator() {
  static auto* allocator = new KernelAllocator();
  return allocator;
}

at::Tensor cpu_alias(const at::Tensor& tensor) {
  return alias_over(require_memory(tensor), tensor.storage().nbytes(), tensor);
}

at::Tensor shape_alias(const at::Tensor& tensor) {
  c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  return alias_over(storage->_mutable_data_ptr_no_checks().get(), storage->nbytes(), tensor);
}

at::Tensor unowned_alias(const at::Tensor& tensor) {
  c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  return alias_over(const_cast<void*>(storage->data()), storage->nbytes(), tensor);
}

at::Tensor meta_alias(const at::Tensor& tensor) {
  return alias_in(c10::Storage(c10::Storage::use_byte_size_t(), tensor.storage().nbytes(),
                               c10::DataPtr(nullptr, c10::Device(c10::kMeta)), c10::GetAllocator(c10::kMeta),
                               /*resizable=*/true),
                  tensor);
}

void Aliases::Index::add(const void* key, size_t operand) {
  if (few_.size() < kFew) {
    few_.push_back(key);
  } else {
    many_.emplace(key, operand);
  }
}

std::optional<size_t> Aliases::Index::find(const void* key) const {
  for (size_t i = 0; i < few_.size(); ++i)
    if (few_[i] == key) return i;
  if (few_.size() < kFew) return std::nullopt;
  auto at = many_.find(key);
  return at == many_.end() ? std::nullopt : std::optional<size_t>(at->second);
}

const Aliases::Operand* Aliases::find(const Index& index, const void* key) const {
  const auto at = index.find(key);
  return at ? &operands_[*at] : nullptr;
}

at::Tensor Aliases::touching_alias(const at::Tensor& tensor) {
  c10::StorageImpl& storage = *tensor.storage().unsafeGetStorageImpl();
  if (shapes_only()) {
    require_memory(tensor);
    return meta_alias(tensor);
  }
  if (!shares_bytes(storage)) return cpu_alias(tensor);
  any_shared_ = true;
  return alias_in(sharing_alias(storage), tensor);
}

at::Tensor Aliases::enter(const at::Tensor& tensor, uint8_t use, bool touched) {
  if (!on_sim(tensor)) return tensor;
  if (tensor.layout() == c10::Layout::Sparse) return enter_sparse(tensor, use);
  if (const auto known = by_sim_.find(tensor.unsafeGetTensorImpl())) {
    operands_[*known].use |= use;
    return operands_[*known].cpu;
  }
  const void* storage = tensor.storage().unsafeGetStorageImpl();
  const Operand* sibling = find(by_sim_storage_, storage);
  at::Tensor cpu = sibling   ? alias_in(sibling->cpu.storage(), tensor)
                   : touched ? touching_alias(tensor)
                             : shape_alias(tensor);
  const size_t number = operands_.size();
  by_sim_.add(tensor.unsafeGetTensorImpl(), number);
  by_cpu_.add(cpu.unsafeGetTensorImpl(), number);
  by_sim_storage_.add(storage, number);
  by_cpu_storage_.add(cpu.storage().unsafeGetStorageImpl(), number);
  operands_.push_back({tensor, cpu, use});
  return cpu;
}

at::Tensor Aliases::enter_sparse(const at::Tensor& tensor, uint8_t use) {
  for (const SparseOperand& known : sparse_operands_)
    if (known.sim.is_same(tensor)) return known.cpu;
  const at::SparseTensorImpl& impl = sparse_impl(tensor);
  const at::Tensor indices = enter(impl.indices_, use), values = enter(impl.values_, use);
  const at::Tensor cpu = sparse_like(tensor, c10::DispatchKey::SparseCPU, indices, values);
  sparse_operands_.push_back({tensor, cpu, indices, values});
  return cpu;
}

void Aliases::write_back_sparse() {
  for (const SparseOperand& operand : sparse_operands_) {
    const at::SparseTensorImpl &before = sparse_impl(operand.sim), &now = sparse_impl(operand.cpu);
    if (now.indices_.is_same(operand.indices) && now.values_.is_same(operand.values) && now.sizes() == before.sizes() &&
        now.coalesced() == before.coalesced())
      continue;
    rebuild(operand.sim, operand.cpu, leave(now.indices_), leave(now.values_));
  }
}

at::Tensor Aliases::leave_sparse(const at::Tensor& result) {
  for (const SparseOperand& operand : sparse_operands_)
    if (operand.cpu.is_same(result)) return operand.sim;
  const at::SparseTensorImpl& impl = sparse_impl(result);
  return sparse_like(result, c10::DispatchKey::SparsePrivateUse1, leave(impl.indices_), leave(impl.values_));
}

void Aliases::write_back() {
  for (Operand& operand : operands_) {
    c10::StorageImpl* cpu = operand.cpu.storage().unsafeGetStorageImpl();
    c10::StorageImpl* sim = operand.sim.storage().unsafeGetStorageImpl();
    const bool shape = cpu->device_type() == c10::kMeta;
    if (shape && cpu->nbytes() > sim->nbytes()) {
      replace_bytes(*sim, DeviceMemory::get().allocate(cpu->nbytes()), cpu->nbytes());
    } else if (!shape && !shares_bytes(*cpu) && cpu->_mutable_data_ptr_no_checks().get_context()) {
      // Not the alias's borrowed memory any more.
      c10::DataPtr data = cpu->set_data_ptr(c10::DataPtr(nullptr, c10::Device(c10::kCPU)));
      data.unsafe_set_device(sim_device());
      cpu->set_data_ptr_noswap(c10::DataPtr(data.get(), c10::Device(c10::kCPU)));
      replace_bytes(*sim, std::move(data), cpu->nbytes());
    }
    if (operand.sim.sizes() != operand.cpu.sizes() || operand.sim.strides() != operand.cpu.strides())
      operand.sim.unsafeGetTensorImpl()->set_sizes_and_strides(operand.cpu.sizes(), operand.cpu.strides(),
                                                               operand.cpu.storage_offset());
  }
  write_back_sparse();
}

c10::Storage Aliases::steal(const c10::Storage& storage) {
  c10::StorageImpl* fresh = storage.unsafeGetStorageImpl();
  for (auto& [from, stolen] : stolen_)
    if (from == fresh) return stolen;
  const size_t bytes = fresh->nbytes();
  c10::DataPtr data;
  if (shapes_only()) {
    data = DeviceMemory::get().allocate(bytes);
  } else if (!fresh->data() || (fresh->resizable() && DeviceMemory::of(fresh->data()))) {
    data = fresh->set_data_ptr(c10::DataPtr(nullptr, c10::Device(c10::kCPU)));
    data.unsafe_set_device(sim_device());
  } else {  // Allocated by another thread, or a constant of the kernel's.
    data = DeviceMemory::get().allocate(bytes);
    std::memcpy(data.get(), fresh->data(), bytes);
  }
  c10::Storage stolen(c10::Storage::use_byte_size_t(), bytes, std::move(data), &DeviceMemory::get(),
                      /*resizable=*/true);
  stolen_.emplace_back(fresh, stolen);
  return stolen;
}

at::Tensor Aliases::leave(const at::Tensor& result) {
  if (!result.defined() || !(result.device().is_cpu() || result.device().is_meta())) return result;
  if (result.layout() == c10::Layout::Sparse) return leave_sparse(result);
  if (const Operand* same = find(by_cpu_, result.unsafeGetTensorImpl())) return same->sim;
  if (const Operand* base = find(by_cpu_storage_, result.storage().unsafeGetStorageImpl()))
    return shaped_like(
        result, at::detail::make_tensor<c10::TensorImpl>(c10::TensorImpl::VIEW, c10::Storage(base->sim.storage()),
                                                         base->sim.key_set(), result.dtype()));
  return shaped_like(result,
                     at::detail::make_tensor<c10::TensorImpl>(
                         steal(result.storage()), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), result.dtype()));
}

}  // namespace sim

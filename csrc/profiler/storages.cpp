#include "profiler/storages.h"

#include <algorithm>

namespace bayplan {
namespace {

const void* block_of(const c10::StorageImpl& storage) {
  // The plain accessor throws for storages that must not be read (fake, swapped out); asking for the address is no
  // read.
  return const_cast<c10::StorageImpl&>(storage)._mutable_data_ptr_no_checks().get();
}

}  // namespace

const c10::Storage* storage_on(c10::Device device, const at::Tensor& tensor) {
  const c10::TensorImpl* body = tensor.unsafeGetTensorImpl();
  if (!tensor.defined() || !body->has_storage() || body->is_wrapped_number()) {
    return nullptr;
  }
  const c10::Storage& storage = body->unsafe_storage();
  const c10::StorageImpl* impl = storage.unsafeGetStorageImpl();
  if (impl == nullptr || impl->device() != device || impl->sym_nbytes().is_symbolic()) {
    return nullptr;
  }
  return &storage;
}

std::optional<uint32_t> StorageTable::number(const at::Tensor& tensor, int64_t op, bool produced) {
  const c10::Storage* storage = storage_on(device_, tensor);
  if (storage == nullptr) {
    return std::nullopt;
  }
  const c10::StorageImpl* impl = storage->unsafeGetStorageImpl();
  const auto bytes = static_cast<int64_t>(impl->nbytes());
  if (bytes > 0 && block_of(*impl) == nullptr) {
    return std::nullopt;
  }
  const auto [position, fresh] = numbers_.emplace(impl, static_cast<uint32_t>(records_.size()));
  if (fresh) {
    records_.push_back(StorageRecord{bytes, birth(*impl, op, produced), tensor.scalar_type(), false, false});
    identities_.push_back(storage->getWeakStorageImpl());
  }
  StorageRecord& record = records_[position->second];
  record.bytes = std::max(record.bytes, bytes);
  record.leaf = record.leaf || (tensor.requires_grad() && tensor.is_leaf());
  return position->second;
}

std::optional<uint32_t> StorageTable::find(const void* address) const {
  const auto found = numbers_.find(address);
  return found == numbers_.end() ? std::nullopt : std::optional<uint32_t>(found->second);
}

void StorageTable::allocated(const void* block, int64_t bytes, std::optional<int64_t> op) {
  blocks_[block] = Block{bytes, op, false};
}

int64_t StorageTable::freed(const void* block) {
  const auto found = blocks_.find(block);
  if (found == blocks_.end()) {
    return 0;
  }
  const int64_t bytes = found->second.bytes;
  blocks_.erase(found);
  return bytes;
}

std::optional<int64_t> StorageTable::birth(const c10::StorageImpl& storage, int64_t op, bool produced) const {
  if (storage.nbytes() == 0) {  // no block: no report to go by
    return produced ? std::optional<int64_t>(op) : std::nullopt;
  }
  const auto found = blocks_.find(block_of(storage));
  if (found == blocks_.end() || found->second.resident) {
    return std::nullopt;
  }
  return found->second.op.value_or(op);
}

}  // namespace bayplan

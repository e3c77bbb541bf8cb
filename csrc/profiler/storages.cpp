#include "profiler/storages.h"

#include <algorithm>

namespace bayplan {
namespace {

// The plain accessor throws for storages that must not be read (fake, swapped out); asking for the address is no read.
const c10::DataPtr& data_of(const c10::StorageImpl& storage) {
  return const_cast<c10::StorageImpl&>(storage)._mutable_data_ptr_no_checks();
}

// Bytes without an address, unless something stands in for them: the data is on the host.
bool has_no_data(const c10::StorageImpl& storage) {
  const c10::DataPtr& data = data_of(storage);
  return storage.nbytes() > 0 && data.get() == nullptr && data.get_context() == nullptr;
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
  if (has_no_data(*impl)) {
    return std::nullopt;
  }
  const auto [position, fresh] = numbers_.try_emplace(impl, static_cast<uint32_t>(records_.size()));
  if (fresh) {
    const std::optional<int64_t> born = birth(*impl, op, produced);
    const std::optional<uint32_t> inner = born == op ? std::nullopt : place_inside(*impl, born);
    records_.push_back(StorageRecord{bytes, born, inner, first_request(*impl), tensor.scalar_type(), false, false});
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

std::vector<uint32_t> StorageTable::living() const {
  std::vector<uint32_t> found;
  for (uint32_t number = 0; number < identities_.size(); ++number) {
    if (identities_[number].use_count() > 0) found.push_back(number);
  }
  return found;
}

void StorageTable::returned_inside(const c10::Storage& storage, int64_t op, uint32_t place) {
  const c10::StorageImpl* impl = storage.unsafeGetStorageImpl();
  if (numbers_.count(impl) == 0 && inside_.count(impl) == 0) {
    inside_.emplace(impl, Inside{storage.getWeakStorageImpl(), op, place});
  }
}

std::optional<uint32_t> StorageTable::place_inside(const c10::StorageImpl& storage, std::optional<int64_t> born) const {
  const auto found = inside_.find(&storage);
  if (found == inside_.end() || born != found->second.op) return std::nullopt;
  return found->second.place;
}

void StorageTable::allocated(const void* block, int64_t bytes, std::optional<int64_t> op, uint32_t request) {
  blocks_[block] = Block{bytes, op, false, request};
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

void StorageTable::leaving(c10::StorageImpl& storage) {
  if (storage.device() != device_ || numbers_.count(&storage) > 0 || departures_.count(&storage) > 0) {
    return;
  }
  auto identity = c10::weak_intrusive_ptr<c10::StorageImpl>::reclaim(
      static_cast<c10::StorageImpl*>(c10::raw::intrusive_ptr::make_weak(&storage)));
  departures_.emplace(&storage, Departure{std::move(identity), first_block(storage)});
}

std::optional<StorageTable::Block> StorageTable::first_block(const c10::StorageImpl& storage) const {
  const auto left = departures_.find(&storage);
  if (left != departures_.end()) {
    return left->second.block;
  }
  const auto found = blocks_.find(data_of(storage).get());
  return found == blocks_.end() ? std::nullopt : std::optional<Block>(found->second);
}

std::optional<uint32_t> StorageTable::first_request(const c10::StorageImpl& storage) const {
  const std::optional<Block> block = first_block(storage);
  if (storage.nbytes() == 0 || !block.has_value() || block->resident) {
    return std::nullopt;
  }
  return block->request;
}

std::optional<int64_t> StorageTable::birth(const c10::StorageImpl& storage, int64_t op, bool produced) const {
  if (storage.nbytes() == 0) {  // no block: no report to go by
    return produced ? std::optional<int64_t>(op) : std::nullopt;
  }
  const std::optional<Block> block = first_block(storage);
  if (!block.has_value() || block->resident) {
    return std::nullopt;
  }
  return block->op.value_or(op);
}

}  // namespace bayplan

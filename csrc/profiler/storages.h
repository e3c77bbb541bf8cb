// Names for storages. Views share their storage, so they share its number.
//
// Identity. The table holds a *weak* reference to every StorageImpl that it has numbered: the data is freed as early as
// without a profiler, but the object's address is not reused while the table lives. So an address is an identity, and a
// tensor that happens to get a dead tensor's memory gets a new number.
//
// Birth. The allocator reports every block that the step allocates. A storage first seen on such a block was born in
// the operator that allocated it, or, allocated between operators (`torch.empty`), in the operator that first touches
// it. A storage on any other block was alive before the step. Swapping moves storages to other blocks: a storage that
// leaves before it was numbered is born where the block that it left was, and one that comes back without having been
// seen to leave is older than the step.
#pragma once

#include <ATen/core/Tensor.h>

#include <c10/util/flat_hash_map.h>

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

namespace bayplan {

struct StorageRecord {
  int64_t bytes;                // the largest that it was seen with
  std::optional<int64_t> born;  // operator, or nothing: alive before the step
  // Born inside an operator that did not return it: its place among the distinct storages that the operators inside
  // that one returned, in order (a `StorageSet`). Nothing where no operator inside returned it.
  std::optional<uint32_t> inner;
  std::optional<uint32_t> request;  // the allocator's report of the block that it was first seen on, if there was one
  c10::ScalarType dtype;            // of the tensor that it was first seen through
  bool gradient;                    // autograd left it in a leaf's `.grad`
  bool leaf;                        // seen as a leaf that requires a gradient
};

// The storage of a tensor on that device, with data or swapped out; null for tensors that have none (undefined, sparse,
// fake, a Python number) or have it elsewhere.
const c10::Storage* storage_on(c10::Device device, const at::Tensor& tensor);

// Distinct storages in order of first appearance. Weak references keep each address from being used again meanwhile.
// The profiler and the swap executor both list so what the operators inside a counted one returned: place 3 is the same
// storage to both.
class StorageSet {
 public:
  using Weak = c10::weak_intrusive_ptr<c10::StorageImpl>;

  // The storage's place, and whether it is new.
  std::pair<uint32_t, bool> place(const c10::Storage& storage) {
    const auto next = static_cast<uint32_t>(storages_.size());
    const auto [found, fresh] = places_.emplace(storage.unsafeGetStorageImpl(), next);
    if (fresh) storages_.push_back(storage.getWeakStorageImpl());
    return {found->second, fresh};
  }
  // Null where there is none, or it died.
  c10::intrusive_ptr<c10::StorageImpl> at(uint32_t place) const {
    return place < storages_.size() ? storages_[place].lock() : c10::intrusive_ptr<c10::StorageImpl>();
  }
  bool contains(const c10::StorageImpl& storage) const { return places_.count(&storage) > 0; }
  bool empty() const { return storages_.empty(); }
  void clear() {
    places_.clear();
    storages_.clear();
  }

 private:
  ska::flat_hash_map<const c10::StorageImpl*, uint32_t> places_;
  std::vector<Weak> storages_;
};

class StorageTable {
 public:
  explicit StorageTable(c10::Device device) : device_(device) {}

  // The number of the tensor's storage, in order of first appearance; nothing where `storage_on` finds none. `op` is
  // the operator that touches the tensor, `produced` whether it returned it.
  std::optional<uint32_t> number(const at::Tensor& tensor, int64_t op, bool produced);

  // The number that a storage already has. `address` is that of its StorageImpl.
  std::optional<uint32_t> find(const void* address) const;

  // An operator inside operator `op` returned the tensor, whose place among such results is `place`.
  void returned_inside(const c10::Storage& storage, int64_t op, uint32_t place);

  // The allocator's reports: `op` is the operator that the thread is in, or nothing; `request` the report's number.
  void allocated(const void* block, int64_t bytes, std::optional<int64_t> op, uint32_t request);

  // A storage is about to leave its block for the host.
  void leaving(c10::StorageImpl& storage);

  // A block that is older than the recording, or that an older storage returns to.
  void resident(const void* block, int64_t bytes) { blocks_[block] = Block{bytes, std::nullopt, true, 0}; }

  // Forgets the block; its size if it was known, else 0.
  int64_t freed(const void* block);

  void mark_gradient(uint32_t storage) { records_[storage].gradient = true; }

  const std::vector<StorageRecord>& records() const { return records_; }
  // The numbers of those that somebody holds now.
  std::vector<uint32_t> living() const;

 private:
  struct Block {
    int64_t bytes;
    std::optional<int64_t> op;
    bool resident;
    uint32_t request;
  };

  // The block that a storage left before it was numbered; nothing if that was older than the recording.
  struct Departure {
    c10::weak_intrusive_ptr<c10::StorageImpl> identity;
    std::optional<Block> block;
  };

  // Where an operator inside a counted one first returned a storage.
  struct Inside {
    c10::weak_intrusive_ptr<c10::StorageImpl> identity;
    int64_t op;
    uint32_t place;
  };

  std::optional<uint32_t> place_inside(const c10::StorageImpl& storage, std::optional<int64_t> born) const;
  std::optional<Block> first_block(const c10::StorageImpl& storage) const;
  std::optional<uint32_t> first_request(const c10::StorageImpl& storage) const;
  std::optional<int64_t> birth(const c10::StorageImpl& storage, int64_t op, bool produced) const;

  c10::Device device_;
  std::vector<StorageRecord> records_;
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> identities_;
  std::unordered_map<const void*, uint32_t> numbers_;
  std::unordered_map<const void*, Block> blocks_;
  std::unordered_map<const void*, Departure> departures_;
  ska::flat_hash_map<const void*, Inside> inside_;
};

}  // namespace bayplan

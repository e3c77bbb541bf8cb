// The storages that a session knows: those that operators used, by the address of their StorageImpl. A weak reference
// to each keeps that address from being used again while the table holds it, and no memory of the device.
#pragma once

#include <c10/core/Storage.h>
#include <c10/util/flat_hash_map.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "follow/features.h"
#include "follow/touch.h"

namespace bayplan::swap {

struct Tracked {
  c10::weak_intrusive_ptr<c10::StorageImpl> storage;
  uint64_t first_use;      // number of the operator that showed it first
  uint64_t last_use;       // and last, 0 if none yet; numbers run through all iterations from 1
  uint64_t order;          // among all that were ever seen: of one operator's arguments, the first one first
  uint64_t iteration = 0;  // of the features
  Features features = {};
  Features without_gradients = {};     // of uses in that phase, so that a validation changes no features of training
  bool resident = false;               // older than the session: parameters, optimizer states
  uint64_t held = 0;                   // the iteration until whose end it stays: its address was given away
  bool barred = false;                 // other threads or processes may use it: it stays
  std::vector<TouchPtr> touches = {};  // by other streams since it came: it leaves behind them
  EventPtr copied = nullptr;           // the copy that brought it back: other streams use it behind that
};

class Tracker {
 public:
  // The entry of a storage, made if it is new.
  Tracked& at(const c10::Storage& storage, uint64_t now) {
    c10::StorageImpl* key = storage.unsafeGetStorageImpl();
    const auto found = table_.find(key);
    if (found != table_.end()) return found->second;
    if (table_.size() >= next_prune_) prune();
    return table_.emplace(key, Tracked{storage.getWeakStorageImpl(), now, 0, seen_++}).first->second;
  }

  Tracked* find(c10::StorageImpl* storage) {
    const auto found = table_.find(storage);
    return found == table_.end() ? nullptr : &found->second;
  }

  // Forgets storages that died.
  void prune() {
    for (auto entry = table_.begin(); entry != table_.end();) {
      entry = entry->second.storage.use_count() == 0 ? table_.erase(entry) : ++entry;
    }
    next_prune_ = std::max<size_t>(kLeast, 2 * table_.size());
  }

  void clear() { table_.clear(); }
  size_t size() const { return table_.size(); }
  auto begin() const { return table_.begin(); }
  auto end() const { return table_.end(); }

 private:
  static constexpr size_t kLeast = 4096;
  ska::flat_hash_map<c10::StorageImpl*, Tracked> table_;
  size_t next_prune_ = kLeast;
  uint64_t seen_ = 0;
};

}  // namespace bayplan::swap

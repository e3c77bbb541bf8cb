#include "sim/addresses.h"

#include <c10/util/Exception.h>
#include <sys/mman.h>

#include <algorithm>

namespace sim {
namespace {

constexpr size_t kLeastReserved = size_t{1} << 34;
constexpr size_t kDirtyAllowed = size_t{512} << 20;  // Free pages kept beyond the bytes in use.
constexpr size_t kPage = 4096;
constexpr size_t kDriverPage = size_t{2} << 20;  // What a driver maps at once: whole ones lie at multiples of it.

size_t pages_up(size_t at) { return (at + kDriverPage - 1) / kDriverPage * kDriverPage; }

}  // namespace

AddressSpace::AddressSpace(size_t most) {
  for (reserved_ = most; reserved_ >= kLeastReserved; reserved_ /= 2) {
    void* at = mmap(nullptr, reserved_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at != MAP_FAILED) {
      const auto begin = reinterpret_cast<uintptr_t>(at);
      base_ = reinterpret_cast<char*>(pages_up(begin));
      reserved_ -= pages_up(begin) - begin;
      return;
    }
  }
  TORCH_CHECK(false, "device sim cannot reserve ", kLeastReserved, " bytes of virtual addresses: raise `ulimit -v`");
}

void AddressSpace::insert(size_t offset, Range range) {
  free_[offset] = range;
  by_size_.insert({range.owner, range.bytes, offset});
  if (range.dirty) dirty_ += range.bytes;
}

AddressSpace::Ranges::iterator AddressSpace::erase(Ranges::iterator at) {
  by_size_.erase({at->second.owner, at->second.bytes, at->first});
  if (at->second.dirty) dirty_ -= at->second.bytes;
  return free_.erase(at);
}

bool AddressSpace::take_from(int64_t owner, size_t bytes, size_t* offset) {
  auto best = by_size_.lower_bound({owner, bytes, 0});
  const bool pages = owner == kAnyone && bytes % kDriverPage == 0;
  while (pages && best != by_size_.end() && std::get<0>(*best) == owner && std::get<2>(*best) % kDriverPage != 0)
    ++best;
  if (best == by_size_.end() || std::get<0>(*best) != owner) return false;
  auto at = free_.find(std::get<2>(*best));
  *offset = at->first;
  const Range range = at->second;
  erase(at);
  if (range.bytes > bytes) insert(*offset + bytes, {range.bytes - bytes, owner, range.dirty});
  return true;
}

size_t AddressSpace::take(size_t bytes, size_t stream) {
  size_t offset = 0;
  if (!take_from(static_cast<int64_t>(stream), bytes, &offset)) return take_anywhere(bytes);
  in_use_ += bytes;
  return offset;
}

size_t AddressSpace::take_anywhere(size_t bytes) {
  size_t offset = 0;
  if (!take_from(kAnyone, bytes, &offset)) {
    const size_t begin = bytes % kDriverPage == 0 ? pages_up(tail_) : tail_;
    if (begin > tail_ && begin < reserved_) insert(tail_, {begin - tail_, kAnyone, false});
    tail_ = std::max(tail_, std::min(begin, reserved_));
    TORCH_CHECK(tail_ + bytes <= reserved_, "device sim ran out of its ", reserved_,
                " bytes of virtual addresses: call torch.accelerator.empty_cache()");
    offset = tail_;
    tail_ += bytes;
  }
  in_use_ += bytes;
  return offset;
}

void AddressSpace::absorb_neighbours(size_t* offset, Range* range) {
  auto joins = [&](const Range& other) { return other.owner == range->owner; };
  auto next = free_.lower_bound(*offset);
  if (next != free_.end() && next->first == *offset + range->bytes && joins(next->second)) {
    range->bytes += next->second.bytes;
    next = erase(next);
  }
  if (next == free_.begin()) return;
  auto previous = std::prev(next);
  if (previous->first + previous->second.bytes != *offset || !joins(previous->second)) return;
  *offset = previous->first;
  range->bytes += previous->second.bytes;
  erase(previous);
}

void AddressSpace::give_back(size_t offset, size_t bytes, size_t stream) {
  in_use_ -= bytes;
  Range range{bytes, static_cast<int64_t>(stream), true};
  absorb_neighbours(&offset, &range);
  insert(offset, range);
}

bool AddressSpace::has_pages_to_spare() const { return dirty_ > in_use_ + kDirtyAllowed; }

void AddressSpace::give_back_to_all(size_t offset, size_t bytes) {
  in_use_ -= bytes;
  drop_pages_of(offset, bytes);
  Range range{bytes, kAnyone, false};
  absorb_neighbours(&offset, &range);
  if (offset + range.bytes == tail_)
    tail_ = offset;
  else
    insert(offset, range);
}

void AddressSpace::drop_pages_of(size_t offset, size_t bytes) {
  const size_t first = (offset + kPage - 1) / kPage * kPage, last = (offset + bytes) / kPage * kPage;
  if (last > first) madvise(base_ + first, last - first, MADV_DONTNEED);
}

void AddressSpace::drop_pages() {
  for (auto& [offset, range] : free_) {
    if (!range.dirty) continue;
    drop_pages_of(offset, range.bytes);
    range.dirty = false;
  }
  dirty_ = 0;
}

void AddressSpace::settle_all() {
  drop_pages();
  const Ranges before = std::move(free_);
  free_.clear();
  by_size_.clear();
  Range joined{0, kAnyone, false};
  size_t begin = 0;
  for (const auto& [offset, range] : before) {
    if (joined.bytes != 0 && begin + joined.bytes != offset) {
      insert(begin, joined);
      joined.bytes = 0;
    }
    if (joined.bytes == 0) begin = offset;
    joined.bytes += range.bytes;
  }
  if (joined.bytes != 0 && begin + joined.bytes == tail_)
    tail_ = begin;
  else if (joined.bytes != 0)
    insert(begin, joined);
}

}  // namespace sim

// The device's address space: a reserved range of virtual memory that real pages fill as kernels touch them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <tuple>

namespace sim {

// Gives out byte ranges. How many bytes may be in use is the allocator's business: here there is always room, because
// the range is far larger than any device, so that fragmentation never fails an allocation.
class AddressSpace {
 public:
  // With as many addresses as the system grants, up to `most`.
  explicit AddressSpace(size_t most);
  bool owns(const void* address) const {
    const char* at = static_cast<const char*>(address);
    return at >= base_ && at < base_ + reserved_;
  }
  char* at(size_t offset) const { return base_ + offset; }
  size_t offset_of(const void* address) const { return static_cast<size_t>(static_cast<const char*>(address) - base_); }

  // A range that this stream gave back before (the best fit), else one that is free for all, else a fresh one.
  size_t take(size_t bytes, size_t stream);
  // The range is free again, for this stream only: others are not ordered after its last use.
  void give_back(size_t offset, size_t bytes, size_t stream);
  // Whether free ranges hold far more pages than a program will soon want again.
  bool has_pages_to_spare() const;
  // Returns the pages of all free ranges to the system. What was queued before the frees must have had its bytes.
  void drop_pages();
  // The same for ranges that any stream may have next; the device must be done with them. `take_anywhere` gives the
  // best fit of those that were given back so, else a fresh one; whole pages of the driver's (2 MiB) at multiples of
  // them.
  size_t take_anywhere(size_t bytes);
  void give_back_to_all(size_t offset, size_t bytes);
  // Returns the pages inside to the system; the addresses stay taken, and their bytes are undefined.
  void drop_pages_of(size_t offset, size_t bytes);
  // Frees all free ranges for every stream and returns their pages to the system. The device must be idle.
  void settle_all();

 private:
  static constexpr int64_t kAnyone = -1;
  struct Range {
    size_t bytes;
    int64_t owner;
    bool dirty;  // May hold real pages.
  };
  using Ranges = std::map<size_t, Range>;
  void insert(size_t offset, Range range);
  Ranges::iterator erase(Ranges::iterator at);
  bool take_from(int64_t owner, size_t bytes, size_t* offset);
  // Takes free ranges of the same owner that lie beside this one out of the map, and adds them to it.
  void absorb_neighbours(size_t* offset, Range* range);

  char* base_ = nullptr;
  size_t reserved_ = 0;
  size_t tail_ = 0;  // Nothing beyond was ever given out.
  size_t in_use_ = 0;
  size_t dirty_ = 0;  // Bytes of free ranges that may hold real pages.
  Ranges free_;
  std::set<std::tuple<int64_t, size_t, size_t>> by_size_;  // Owner, bytes, offset.
};

}  // namespace sim

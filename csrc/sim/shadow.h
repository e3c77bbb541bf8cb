// Who touched which bytes of a block: the memory of the happens-before check.
#pragma once
#include <c10/util/SmallVector.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "sim/clock.h"

namespace sim {

// The bytes of a tensor that has gaps: rows of `row_bytes` bytes, at `offset` plus every combination of the strides.
struct Strided {
  size_t offset = 0;
  size_t row_bytes = 0;
  c10::SmallVector<int64_t, 5> sizes;
  c10::SmallVector<int64_t, 5> strides;  // In bytes.
  bool operator==(const Strided& other) const;
};

struct Access {
  uint64_t tick = 0;    // The number of this operation on its stream.
  uint32_t stream = 0;  // The machine's number of it.
  bool write = false;
  const char* op = "";
  const char* label = "";  // What the program called this part of itself; empty if it did not.
  size_t begin = 0;        // Bytes of the block, [begin, end).
  size_t end = 0;
  std::shared_ptr<const Strided> strided;  // Null where every byte of [begin, end) is touched.
};

// Whether two accesses to one block touch a common byte.
bool overlap(const Access& a, const Access& b);

// For every byte: the last write and the reads since then that no later access stands for.
class Shadow {
 public:
  // Enters an access that happens after `past`, and appends to `conflicts` every earlier one that it races with. An
  // earlier one that is open may turn out to come after this one, so that this one does not stand for it.
  using IsOpen = bool (*)(const Access&);
  void enter(const Access& access, const VectorClock& past, IsOpen is_open, std::vector<Access>& conflicts);
  // Forgets everything; then, if given, the whole block counts as written by it.
  void reset() { segments_.clear(); }
  void reset(const Access& access);

  template <typename F>
  void for_each(F&& visit) const {
    for (const Segment& segment : segments_)
      for (const Access& access : segment.accesses) visit(access);
  }

 private:
  struct Segment {
    size_t begin;
    size_t end;
    c10::SmallVector<Access, 2> accesses;
  };
  std::vector<Segment>::iterator first_beyond(size_t byte);
  void split_at(size_t byte);
  void merge(const Access& access);  // One segment for the bytes of a write that covers them all, and stands alone.
  static void enter_segment(Segment& segment, const Access& access, const VectorClock& past, IsOpen is_open,
                            std::vector<Access>& conflicts);

  std::vector<Segment> segments_;  // Sorted and disjoint; bytes in no segment were never touched.
};

}  // namespace sim

// One range of addresses for what a session's program allocates, on an allocator that holds segments. Left to itself
// the allocator takes segments by the sizes of the first requests, and segments of one size serve no larger request; it
// then gives them back and takes others, again in each iteration. So the session takes what the budget leaves as one
// block and gives that back at once: from then on the allocator cuts blocks from it and joins them again, and asks the
// driver for nothing. What lies where is known: by the addresses of the storages that the session follows.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "follow/requests.h"
#include "session/state.h"

namespace bayplan::swap {

// A storage's block in the arena; `leaving`: its copy to the host is under way, and the block can be had behind that.
// Without a storage: what nobody has seen, and which stays.
struct Span {
  uintptr_t begin;
  uintptr_t end;
  const Tracked* tracked;
  StoragePtr storage;
  bool leaving;
};

// A storage whose block is to lie between these addresses, where the allocator's best fit will put it.
struct Shift {
  StoragePtr storage;
  uintptr_t begin;
  uintptr_t end;
};

// The blocks of an arena by address; between them it is free.
class Layout {
 public:
  using MayGo = std::function<bool(const Span&)>;

  Layout(const Arena& arena, const Tracker& tracker);

  const std::vector<Span>& spans() const { return spans_; }
  uint64_t free_bytes() const;
  uint64_t largest_gap() const;
  // Gaps of so many bytes and more.
  std::vector<Range> gaps(uint64_t bytes) const;
  // How many blocks of that size fit beside each other or in different gaps.
  uint64_t fitting(uint64_t bytes) const;
  // Whether the allocator, which takes the smallest free range that holds a block, would find one for each request.
  bool serves(const std::vector<Requests::Event>& events) const;
  // Neighbours which, once gone, leave room for a block of that size together with the gaps between them: those of the
  // fewest bytes that are not leaving anyway, among equals those that no operator used for longest. Empty where there
  // is no such room among the storages that may go.
  std::vector<Span> window(uint64_t bytes, const MayGo& may_go) const;
  // Of neighbours which, once elsewhere, leave room for a block of that size: where the allocator puts each, in the
  // order of moving; those of the fewest bytes for whom there is room elsewhere. Empty where there are none.
  std::vector<Shift> shifts(uint64_t bytes, const MayGo& may_move) const;
  // The most room that neighbours leave once they are gone, in bytes.
  uint64_t widest(const MayGo& may_go) const;

 private:
  struct Window {
    uint64_t cost;
    size_t first;
    size_t behind;
  };
  std::vector<Window> windows(uint64_t bytes, const MayGo& may_move) const;
  std::vector<Shift> elsewhere(const Window& window) const;
  uintptr_t gap_begin(size_t place) const { return place == 0 ? arena_.begin : spans_[place - 1].end; }
  uintptr_t gap_end(size_t place) const { return place == spans_.size() ? arena_.end : spans_[place].begin; }

  Range arena_;
  std::vector<Span> spans_;
};

// Whether an allocator that takes the smallest free range which holds a block finds one for each of the requests that
// count.
bool would_serve(const std::vector<Requests::Event>& events, std::vector<Range> free, bool (*counts)(uint64_t bytes));

// The block that the allocator cuts for so many bytes.
uint64_t block_of(uint64_t bytes);

}  // namespace bayplan::swap

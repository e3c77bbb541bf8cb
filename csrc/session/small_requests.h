// Requests of at most 1 MiB on an allocator that holds segments: it serves them from segments (or pages) of 2 MiB that
// serve nothing else, and never from the arena (arena.h). So where the limit leaves no such segment, ranges of the
// arena help nobody: what has to leave lies in small segments.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "session/arena.h"
#include "session/passive.h"
#include "session/state.h"
#include "session/streams.h"

namespace bayplan::swap {

class SmallRequests {
 public:
  using Way = std::vector<Requests::Event>;

  SmallRequests(SessionState& state, Streams& streams, PassiveSwaps& passive)
      : state_(state), streams_(streams), passive_(passive) {}

  static constexpr uint64_t kMostBytes = uint64_t{1} << 20;
  static constexpr uint64_t kSegmentBytes = uint64_t{2} << 20;  // which drivers map at multiples of it
  static bool is_small(uint64_t bytes);
  // What the allocator may hold in all.
  void set_limit(std::optional<uint64_t> bytes) { limit_ = bytes; }
  // Whether segments are fixed: of those it is known which have nothing in them.
  void set_fixed(bool fixed) { fixed_ = fixed; }

  // The allocator has no block for a request that is expected to be of so many bytes; none: nothing is expected. Unless
  // the bytes are few, it may be a small one in either case. `other`: the allocator has a block of the expected size,
  // so that something else was asked for. Until `end` the other functions tell of this request.
  void begin(std::optional<uint64_t> bytes, bool other);
  void end();
  // What was freed for a request in an earlier one may be in other hands.
  void begin_iteration() { in_use_with_room_ = 0; }
  // Whether the request is known to be small.
  bool certain() const { return asked_ > 0 && certain_; }
  // Bytes that lack for so many of them; 0 where it is no small one, or the allocator will find what it needs.
  uint64_t shortage(unsigned requests) const;
  // Storages leave their blocks to the request; whether there are such.
  bool relieve(const Pins& pins);

  // Whether the limit leaves a segment for them at most.
  bool is_short() const { return limit_.has_value() && left() <= kSegmentBytes; }
  // Bytes of blocks that somebody has.
  uint64_t in_use() const;
  // Of segments in which storages lie, as far as is known where.
  uint64_t segments_in_use() const;
  // The allocator will find what it needs once it has given its cache back.
  void expect_cache() { served_ = true; }
  // All that may leave do, so that whole segments go back to the driver; whether there were such.
  bool send_all_away(const Pins& pins);

  // Whether there is room for those of these requests that are small, if need be (`others_leave`) once others have left
  // for them: as far as is known where they lie.
  bool make_room(const Way& way, const Pins& pins, bool others_leave);
  bool make_room_for_unknown(uint64_t bytes, const Pins& pins);

 private:
  uint64_t left() const;  // of the limit, in whole segments, and in those that nobody has anything of
  bool serves(const Way& way, const std::vector<Span>& spans) const;
  uint64_t largest_block() const;
  // Whether something has left.
  bool send_some_away(uint64_t bytes, const Pins& pins);
  void note_freed(Range range);
  std::vector<Span> blocks(const Pins& pins) const;
  static std::pair<size_t, size_t> neighbours(const std::vector<Span>& spans, uint64_t bytes,
                                              const Layout::MayGo& may_go);

  SessionState& state_;
  Streams& streams_;
  PassiveSwaps& passive_;
  std::optional<uint64_t> limit_;
  bool fixed_ = false;
  uint64_t asked_ = 0;
  std::vector<Range> freed_ = {};  // by what has left for the request, by address: what lies beside each other is free
  bool served_ = false;
  bool certain_ = false;
  uint64_t in_use_with_room_ = 0;  // by small requests, when others had left for one that may not have come
};

}  // namespace bayplan::swap

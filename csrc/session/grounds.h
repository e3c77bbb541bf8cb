// Makes a session's arena (arena.h), and makes it anew where storages that stay lie scattered in it or around it.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "session/arena.h"
#include "session/passive.h"
#include "session/state.h"
#include "session/streams.h"
#include "session/transfers.h"

namespace bayplan::swap {

enum class Segments : uint8_t { kNone, kFixed, kExpandable };

class Grounds {
 public:
  Grounds(SessionState& state, Streams& streams, Transfers& transfers, PassiveSwaps& passive)
      : state_(state), streams_(streams), transfers_(transfers), passive_(passive) {}

  // How the allocator takes memory, and whether it cuts blocks of any size.
  void set_segments(Segments segments, bool cuts) {
    segments_ = segments;
    cuts_ = cuts;
  }
  Segments segments() const { return segments_; }

  // What there is before the first operator of an iteration is looked at, if it is one of the first or was asked for.
  void begin_iteration();
  void ask() { due_ = true; }
  // The same, as a larger request came, or will, where there have been none.
  void ask_for_large() {
    ++retakes_;
    due_ = true;
    large_requests_ = kUnknown;
  }
  bool due() const { return due_; }
  // Looks at it: outside of operators, on the compute stream's thread.
  void renew(uint64_t limit_bytes, const Pins& pins);
  // A request finds no block. An arena that has lost segments or pages to the driver, as it does where the allocator's
  // cache is emptied, is none any more; and where small requests have used up what is kept for them, it is too large.
  void look(uint64_t limit_bytes);
  // Whether that was found: the arena is to be made anew, outside of operators.
  bool lacks() const { return lost_ || crowded_; }
  // Requests have found no block, so that the allocator may have given its cache back since.
  void doubt() { doubted_ = true; }
  bool doubted() const { return doubted_; }
  void look_for_loss();
  // Makes it anew, smaller where it is too large: outside of operators, too.
  void mend(uint64_t limit_bytes, const Pins& pins);
  // Whether an arena of so many bytes, that no operator has needed so far, leaves small requests something.
  bool would_hold(uint64_t bytes, uint64_t limit_bytes) const;
  // Makes the arena anew, that large, before an operator.
  void widen(uint64_t bytes, uint64_t limit_bytes, const Pins& pins);
  // The same, if it can be had, as an operator ran out of memory; in a request of at most 1 MiB (`small`) it shrinks.
  void begin_anew(uint64_t bytes, bool small, uint64_t limit_bytes, const Pins& pins);
  // A block at the begin of a free arena until so many bytes lie behind it, if these requests find room only so.
  c10::DataPtr keep_before(uint64_t bytes, const std::vector<OperatorNeeds::Way>& ways);
  // Gives the arena back, as another stream will ask for memory that it has to get from the driver.
  void dissolve(const Pins& pins);
  void forget() {
    state_.arena = {};
    lent_ = false;
  }
  // Gives the arena back for small requests: all that lies in it leaves. Whether the driver has it: not where somebody
  // has a block that may not leave.
  bool lend(const Pins& pins);
  // The allocator gave it back for small requests, if it did.
  void note_lent();
  // Whether small requests have the arena's bytes, until `take_back`: for that they leave, if need be.
  bool lent() const { return lent_ && !state_.arena.there(); }
  void take_back(uint64_t limit_bytes, const Pins& pins);
  // Bytes of the arena that somebody has.
  uint64_t large_in_use() const;
  // The most that the allocator has held for requests of at most 1 MiB.
  uint64_t small_peak_bytes();
  // Whether there is no arena as nobody has had a larger block of it, in all of an iteration or until small requests
  // had no room beside it.
  bool only_small() const { return only_small_ && !state_.arena.there(); }
  // Whether it asks the allocator for the arena now: nothing leaves for that.
  bool making() const { return making_; }
  // Whether there has been an arena, which may be asked for again in this iteration.
  bool had() const { return held_bytes_ > 0 && cuts_ && retakes_ < kRetakes; }
  // What the allocator has for requests above 1 MiB, in the arena and in use elsewhere.
  uint64_t pool_bytes() const { return state_.arena.there() || lent() ? taken_bytes_ + outside_bytes_ : 0; }

 private:
  static constexpr uint64_t kFirst = 4;  // iterations: policies are made from later ones
  static constexpr int64_t kUnknown = -1;
  static constexpr unsigned kRetakes = 4;    // of a lost arena in one iteration: each empties the allocator's cache
  static constexpr unsigned kMoves = 4;      // of everything that may move, in all, but for an arena that is larger
  static constexpr unsigned kKnown = 2;      // times that more small requests than ever are expected no longer
  static constexpr unsigned kDissolved = 3;  // times that an arena is given back for other streams: none follows
  bool others_ask() const;
  bool knows_small();
  unsigned most_moves() const { return kMoves + known_; }
  uint64_t tolerated(uint64_t limit_bytes) const;
  bool is_good(uint64_t limit_bytes) const;
  uint64_t to_take(uint64_t limit_bytes) const;
  uint64_t fitting(uint64_t left, uint64_t for_small) const;
  bool may_shrink(uint64_t limit_bytes) const;
  bool lacks_large_requests();
  bool has_served() const;
  void note_small();
  uint64_t small_to_come(uint64_t small, uint64_t limit_bytes) const;
  void give_up();
  void restart_peaks();
  void make_place(uint64_t limit_bytes, const Pins& pins);
  std::vector<StoragePtr> send_all_away(const Pins& pins);
  std::vector<StoragePtr> send_away(const Pins& pins, bool small);
  void take(uint64_t bytes);

  SessionState& state_;
  Streams& streams_;
  Transfers& transfers_;
  PassiveSwaps& passive_;
  Segments segments_ = Segments::kNone;
  bool cuts_ = true;
  bool due_ = true;
  bool again_ = false;  // when the next iteration begins
  bool making_ = false;
  bool only_small_ = false;
  bool used_ = false;  // somebody had a block of an arena that was made anew since one was last looked for
  bool lost_ = false;
  bool crowded_ = false;
  bool doubted_ = false;
  bool ever_served_ = false;  // somebody had a block of an arena
  bool lent_ = false;
  bool begun_ = false;        // the session's first place was made
  bool lent_since_ = false;   // since the peak of small requests counts
  uint64_t not_lent_ = 0;     // iteration in which it could not be
  uint64_t taken_bytes_ = 0;  // of the latest arena
  unsigned moves_ = 0;
  unsigned retakes_ = 0;
  unsigned dissolved_ = 0;               // for other streams
  unsigned anew_ = 0;                    // times that an arena was to be had again after that
  bool emptied_ = false;                 // the allocator may keep segments that serve other streams only
  std::optional<uint64_t> small_begin_;  // bytes of small requests in use as an iteration began,
  uint64_t small_growth_ = 0;            // of their segments at most beyond that, until the next one,
  uint64_t small_peak_ = 0;              // and at all,
  uint64_t more_ = 0;                    // and of those that are expected beyond,
  bool more_lately_ = false;             // as the iteration that runs, or the one before, had too few;
  unsigned known_ = 0;                   // times that they were found to be known
  uint64_t outside_bytes_ = 0;           // of large blocks in use when the arena was made
  uint64_t needed_bytes_ = 0;            // by an operator at once: a smaller arena is none
  uint64_t held_bytes_ = 0;              // of segments for large requests, once it was
  int64_t large_requests_ = 0;           // that the allocator had served when an arena was last looked for
};

}  // namespace bayplan::swap

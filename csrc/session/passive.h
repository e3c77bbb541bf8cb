// Requests for memory that do not fit, answered as SmartSwap's Algorithm 3 does: release the blocks that are being
// swapped out, the compute stream waiting for their copies; then swap out what fits the request best.
#pragma once

#include <cstdint>
#include <optional>

#include "session/moves.h"
#include "session/state.h"
#include "session/streams.h"
#include "session/transfers.h"

namespace bayplan::swap {

// How a session that found more memory in use than its budget came down.
struct Descent {
  uint64_t before_bytes;  // in use
  uint64_t after_bytes;
  uint64_t storages;  // that were swapped out
};

// By size: of storages of at most 1 MiB, for which allocators have segments of their own, and of the others.
struct PoolBytes {
  uint64_t small = 0;
  uint64_t large = 0;
};

class PassiveSwaps {
 public:
  PassiveSwaps(SessionState& state, Streams& streams, Transfers& transfers)
      : state_(state), streams_(streams), transfers_(transfers), moves_(state) {}

  // Answers a request that lacks so many bytes; whether anything was freed.
  bool relieve(uint64_t missing, unsigned attempt, const Pins& pins);
  // Sends away the storage that fits the missing bytes best; whether there was one. `residents`: one that was there
  // before the session began, instead of a younger one.
  bool swap_out(uint64_t missing, const Pins& pins, bool residents);
  // Lets storages in the arena move, and leave (`others_leave`), until a block of that size fits, if need be, and may
  // wait for other threads; whether one fits. Of the pins the first `fixed` may not even move: of the others, arguments
  // of an operator that has not begun, nobody has looked at the addresses yet.
  bool make_room(uint64_t bytes, const Pins& pins, bool others_leave, size_t fixed = SIZE_MAX);
  // Puts blocks elsewhere until one of that size fits; whether one fits.
  bool gather(uint64_t bytes, const Pins& pins);
  // Whether a storage may lie elsewhere from now on.
  bool may_move(const Tracked& tracked, c10::StorageImpl& storage, const Pins& pins) const;
  // Whether a storage may leave now.
  bool may_leave(const Tracked& tracked, c10::StorageImpl& storage, const Pins& pins) const;
  // Sends one away; of one that is leaving already only the block is released.
  void send_away(c10::StorageImpl& storage);
  // Undoes a planned swap-in that is under way; whether there was one.
  bool recall(const Pins& pins) { return transfers_.recall(pins); }
  // Whether other threads' operators keep everything from leaving, for which room lacks.
  bool is_held_up() const;
  // Whether nothing may leave now for a request that finds no memory.
  bool stands_still() const;
  // The last operator but some: what only later ones used stays, if anything else can leave.
  uint64_t not_recent() const;
  // The bytes of the largest storage that was seen and lives.
  uint64_t largest_bytes() const;
  // Blocks of what could leave now if the host had room for it.
  PoolBytes movable(const Pins& pins) const;

 private:
  bool make_room_around(uint64_t bytes, const Pins& pins, const Pins& known);
  void put_together(const Pins& pins, size_t fixed);
  StoragePtr choose(uint64_t missing, const Pins& pins, uint64_t newest, bool residents) const;
  StoragePtr choose_by_address(uint64_t bytes, const Pins& pins, uint64_t newest, bool residents) const;
  bool swap_out_any(uint64_t missing, const Pins& pins);
  bool swap_out_for_most(const Pins& pins, bool residents);
  uint64_t release_leaving(uint64_t missing);

  SessionState& state_;
  Streams& streams_;
  Transfers& transfers_;
  Moves moves_;
};

}  // namespace bayplan::swap

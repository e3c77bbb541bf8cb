// Puts blocks elsewhere in a session's arena (arena.h), so that what is free lies together: copies on the device, on
// the compute stream, which are some fifty times as fast as the link to the host. Between operators, or before one
// begins: whoever runs holds bare addresses.
#pragma once

#include <cstdint>

#include "session/arena.h"
#include "session/state.h"

namespace bayplan::swap {

class Moves {
 public:
  explicit Moves(SessionState& state) : state_(state) {}

  // Moves storages that may move until a block of that size fits; whether one fits. Nothing moves where none would.
  bool gather(uint64_t bytes, const Layout::MayGo& may_move);

 private:
  bool move(const Shift& shift);

  SessionState& state_;
};

}  // namespace bayplan::swap

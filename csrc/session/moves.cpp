#include "session/moves.h"

namespace bayplan::swap {

bool Moves::gather(uint64_t bytes, const Layout::MayGo& may_move) {
  const std::vector<Shift> shifts = Layout(state_.arena, state_.tracker).shifts(bytes, may_move);
  for (const Shift& shift : shifts) {
    if (!move(shift)) return false;
  }
  return !shifts.empty();
}

// A block that no operator shows may lie where the layout is free: the allocator then answers with another place, and
// what was planned from here on is worth nothing.
bool Moves::move(const Shift& shift) {
  const EngineWork work = state_.work();
  if (!state_.store.move(*shift.storage, *state_.compute, shift.begin, shift.end)) return false;
  ++state_.counts.moved;
  state_.counts.moved_bytes += shift.storage->nbytes();
  return true;
}

}  // namespace bayplan::swap

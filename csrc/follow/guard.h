// Sees every operator before it runs, and hands it to whoever follows the program; where nobody does, brings back the
// storages that it is about to touch. Subscribed to PyTorch's dispatcher only while something is out or somebody
// watches.
#pragma once

namespace bayplan::swap {

// Subscribes or unsubscribes, as the store and the active follower require.
void refresh_guard();

// Whether the guard is told the results of operators.
bool guard_has_results();

// Keeps the guard subscribed, and looking at every argument, though nothing is out: what `make bench` measures.
void hold_guard(bool hold);

// Subscribes an observer that is given every argument and does nothing: what PyTorch itself takes for one.
void hold_idle_observer(bool hold);

bool guard_is_on();

}  // namespace bayplan::swap

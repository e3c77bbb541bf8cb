// Sees every operator before it runs: brings back the storages that it is about to touch, and tells the active step
// where the program is. Subscribed to PyTorch's dispatcher only while something is out or a step runs.
#pragma once

namespace bayplan::swap {

// Subscribes or unsubscribes, as the store and the active step require.
void refresh_guard();

// A step begins: no thread is in an operator of it.
void forget_frames();

// Keeps the guard subscribed, and looking at every argument, though nothing is out: what `make bench` measures.
void hold_guard(bool hold);

bool guard_is_on();

}  // namespace bayplan::swap

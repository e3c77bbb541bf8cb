// Sees every operator before it runs: brings back the storages that it is about to touch, and tells the active step
// where the program is, and the active session. Subscribed to PyTorch's dispatcher only while something is out, a step
// runs or a session watches.
#pragma once

#include "session/session.h"

namespace bayplan::swap {

// Subscribes or unsubscribes, as the store and the active step require.
void refresh_guard();

// A step begins, or a session starts, stops or is paused: no thread is in an operator of it.
void forget_frames();
// In a forked process, which has the calling thread alone.
void forget_other_threads();

// Keeps the guard subscribed, and looking at every argument, though nothing is out: what `make bench` measures.
void hold_guard(bool hold);

// Subscribes an observer that is given every argument and does nothing: what PyTorch itself takes for one.
void hold_idle_observer(bool hold);

bool guard_is_on();

// While a session is active: the storages among the arguments of all operators that the calling thread is in, nested
// ones included.
const Pins& pinned();
// Whether another thread is inside an operator on the device that a session has followed.
bool others_compute();
// Whether the calling thread runs code of torch.compile, which hands addresses about where no operator tells.
bool in_compiled_code();

}  // namespace bayplan::swap

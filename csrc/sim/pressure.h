// Who helps when a device's memory runs short.
#pragma once
#include <cstddef>

namespace sim {

// Asked for help with a request of `bytes` that lacks `missing` bytes; true if it freed something. Attempt 0 may let
// streams wait for copies that are under way, later ones may start copies.
using PressureHandler = bool (*)(size_t bytes, size_t missing, unsigned attempt);

void set_pressure_handler(size_t device, PressureHandler handler);  // Null takes it back.

// Asks the current device's handler. False if there is none, or if this is an allocation of its own. The machine's lock
// must not be held: the handler has locks of its own, under which it uses the machine.
bool relieve_pressure(size_t bytes, size_t missing, unsigned attempt);

// An allocator with segments asks once, before it takes new memory, and does not say what it lacks; true if something
// was freed.
using ReliefCallback = bool (*)();

void set_relief_callback(size_t device, ReliefCallback callback);  // Null takes it back.

// The same as `relieve_pressure`, of the callback. Asked with the machine's lock held, as CUDA's allocator holds its
// own: the callback waits for no thread, and not for the device.
bool ask_relief();
// Whether the calling thread is inside the callback.
bool is_asking_relief();

}  // namespace sim

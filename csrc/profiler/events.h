// Events that are used again: a device makes one in microseconds, and a step needs thousands.
#pragma once

#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <memory>

namespace bayplan {

// Goes back to the pool with its last owner; who waits for what it recorded goes on doing so.
using EventPtr = std::shared_ptr<c10::Event>;

// An event at the end of what the stream holds now; a `timed` one tells when that was.
EventPtr recorded_event(c10::Stream stream, bool timed);
// Makes sure that so many timed events of the stream's device lie in the pool.
void prepare_timed_events(c10::Stream stream, size_t count);
// How many events were ever made in this process.
uint64_t events_made();

}  // namespace bayplan

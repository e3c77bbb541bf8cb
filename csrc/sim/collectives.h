// What collectives between devices are made of. Who takes part, what is computed and how long it takes is the caller's
// business: a member of a group issues its part on a stream of its device, and when all have, the last finishes it.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "sim/machine.h"

namespace sim {

// Bytes that a finished collective puts into a tensor of one of its members (by its place among the streams).
struct CommMove {
  size_t member;
  at::Tensor target;  // Of sim.
  at::Tensor source;  // Of the CPU; copied at once.
};

// A member's part on a stream of its device: the host launches it, it comes after what the stream has been told to wait
// for, and touches these tensors. Returns the earliest nanosecond at which it can start. The caller keeps the tensors
// alive until it has finished.
Nanoseconds issue_comm(size_t stream, const std::vector<at::Tensor>& reads, const std::vector<at::Tensor>& writes,
                       const char* op);

// Called on a thread that is about to sleep until parts are finished on streams of a device, with no lock held: whoever
// finishes them may need that thread. Null: the thread sleeps until another one finishes them.
void set_comm_waiter(std::function<void(size_t device)> waiter);

// The oldest part of each of these streams ran from start to end. From now on what comes after one member's part comes
// after what came before any member's. The bytes arrive as late as those of a copy: when something that happens after
// the member's part is about to run, so that who forgets to wait reads what was there before, whichever member came
// last. Returns each member's end, for streams and hosts to wait for.
std::vector<Point> finish_comm(const std::vector<size_t>& streams, const char* op, Span span, int64_t bytes,
                               const std::vector<CommMove>& moves);

// As an event that is recorded on the one stream and waited for by the other; of any devices.
void wait_for_stream(size_t waiter, size_t waited);

}  // namespace sim

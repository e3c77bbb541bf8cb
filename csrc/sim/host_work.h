// What the host's own code does beside launching: accesses to page-locked memory, and work on a worker that takes time.
#pragma once
#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "sim/machine.h"

namespace sim {

// The thread that launches on a device reads and writes these tensors of the host now. Page-locked bytes of them are
// checked as those of a kernel are: what the device does with them comes before if the host has waited for it, and
// after if it is launched from now on. A write stands for the read of the same bytes. Throws in mode raise at a race.
void access_on_host(size_t device, const std::vector<at::Tensor>& reads, const std::vector<at::Tensor>& writes,
                    const char* name);

// A task for the device's worker, a thread of the host beside the launching one, which goes on at once. It begins when
// the worker is free, is not before the launching host's now, and comes after whatever the worker's stream was made to
// wait for. It touches these tensors of the host.
void start_host_task(size_t device, Nanoseconds duration, const std::vector<at::Tensor>& reads,
                     const std::vector<at::Tensor>& writes, const char* name);

// Whether every operator on tensors of the host alone is an access of the host from now on. Calls are counted: it ends
// when it has been switched off as often as on. Races are raised at the next check, since operators' observers may not
// throw.
void watch_host(bool on);

// The device whose worker does what this thread's operators do on the host, until it is exchanged again; none: they are
// the launching thread's own. They are watched in any case. Returns the one before.
std::optional<int> exchange_working(std::optional<int> device);

}  // namespace sim

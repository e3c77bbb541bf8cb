// Operators by the dispatcher's handle: for those whom the dispatcher calls, and who have no observer's frame.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include "profiler/operators.h"

namespace bayplan {

// The operator of that handle; null where it has no schema.
const OperatorInfo* find_operator(const c10::OperatorHandle& op);

// Whether it is counted, by its schema alone; does not make it one of those seen.
bool does_work(const c10::OperatorHandle& op);

}  // namespace bayplan

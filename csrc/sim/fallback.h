// Runs any operator that has a CPU kernel on tensors of device sim.
#pragma once
#include <torch/library.h>

namespace sim {

// A boxed kernel for this operator, which runs the CPU's kernel of this key.
torch::CppFunction fallback_for(const c10::OperatorHandle& op, c10::DispatchKey cpu);
// A fallback for operators that are not listed; looks up what it knows at each call.
torch::CppFunction fallback_for_any();

}  // namespace sim

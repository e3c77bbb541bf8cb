// Makes device sim known to PyTorch.
#pragma once
#include <cstddef>
#include <vector>

#include "sim/op_info.h"

namespace sim {

// Registers guard, hooks, allocators and operators for the process's life, and returns the number of operators that run
// through the fallback. Nothing in this library registers anything before: PrivateUse1 would hijack a CUDA process.
size_t register_device(std::vector<UndeclaredWrite> undeclared);

// How many devices there are from now on. Nothing may run on any of them meanwhile.
void set_devices(size_t count);

}  // namespace sim

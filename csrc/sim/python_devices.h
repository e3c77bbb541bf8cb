// The part of runtime._sim that concerns one device, or what is between devices.
#pragma once
#include <torch/extension.h>

namespace sim {

void define_devices(pybind11::module_& module);

}  // namespace sim

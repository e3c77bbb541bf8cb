// Bindings of steps that execute a schedule.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace bayplan::swap {

void bind_step(pybind11::module_& module);

}  // namespace bayplan::swap

// Bindings of the guard.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace bayplan::swap {

void bind_follow(pybind11::module_& module);

}  // namespace bayplan::swap

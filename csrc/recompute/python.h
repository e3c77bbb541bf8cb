// Bindings of the tape.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace bayplan::recompute {

void bind_recompute(pybind11::module_& module);

}  // namespace bayplan::recompute

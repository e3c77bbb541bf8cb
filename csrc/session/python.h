// Bindings of sessions.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace bayplan::swap {

void bind_session(pybind11::module_& module);

}  // namespace bayplan::swap

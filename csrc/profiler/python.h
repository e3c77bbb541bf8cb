#pragma once

#include <pybind11/pybind11.h>

namespace bayplan {

// Adds the profiler to the extension module.
void bind_profiler(pybind11::module_& module);

}  // namespace bayplan

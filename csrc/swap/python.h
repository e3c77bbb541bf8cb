#pragma once

#include <pybind11/pybind11.h>

namespace bayplan::swap {

// Adds the swap engine to the extension module.
void bind_swap(pybind11::module_& module);

}  // namespace bayplan::swap

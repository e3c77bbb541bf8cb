// The recorder's hooks on saved tensors, as PyTorch's C++ and as Python see them.
#pragma once

#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <memory>

namespace bayplan::recompute {

// While the calling thread records, autograd gets its hooks from here where the innermost ones are those that Python
// knows by these two objects. They do the same, but for each tensor Python would take its lock five times.
void set_python_hooks(PyObject* pack, PyObject* unpack);

// Puts them on the calling thread's stack of hooks, with an unpacking one of the region's own, and takes what is on top
// away again.
void push_python_hooks(PyObject* unpack);
void pop_python_hooks();

// A thread begins, or ends, to record.
void begin_hooks();
void end_hooks();

}  // namespace bayplan::recompute

// The extension `runtime._C`: glue only. Each folder binds its own functions.
#include "profiler/python.h"
#include "swap/python.h"

#include <torch/csrc/utils/pybind.h>

PYBIND11_MODULE(_C, module) {
  module.doc() = "Bayplan's device-neutral native part: the online profiler and the swap engine.";
  module.attr("torch_version") = BAYPLAN_TORCH_VERSION;  // compared with the running torch by runtime/native.py
  bayplan::bind_profiler(module);
  bayplan::swap::bind_swap(module);
}

// The extension `runtime._C`: glue only. Each folder binds its own functions.
#include "follow/python.h"
#include "profiler/python.h"
#include "recompute/python.h"
#include "session/python.h"
#include "step/python.h"
#include "storage/python.h"

#include <torch/csrc/utils/pybind.h>

PYBIND11_MODULE(_C, module) {
  module.doc() = "Bayplan's device-neutral native part: the online profiler and the swap engine.";
  module.attr("torch_version") = BAYPLAN_TORCH_VERSION;  // compared with the running torch by runtime/device/native.py
  bayplan::bind_profiler(module);
  bayplan::swap::bind_storage(module);
  bayplan::swap::bind_follow(module);
  bayplan::swap::bind_step(module);
  bayplan::swap::bind_session(module);
  bayplan::recompute::bind_recompute(module);
}

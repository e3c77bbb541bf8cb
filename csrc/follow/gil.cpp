#include "follow/gil.h"

#include <pybind11/pybind11.h>

namespace bayplan::swap {
namespace {

// PyGILState_Check also says yes where Python does not know.
bool has_gil() {
  const PyThreadState* own = PyGILState_GetThisThreadState();
  return own != nullptr && own == pybind11::detail::get_thread_state_unchecked();
}

}  // namespace

WithoutGil::WithoutGil() : state_(has_gil() ? PyEval_SaveThread() : nullptr) {}

WithoutGil::~WithoutGil() {
  if (state_ != nullptr) PyEval_RestoreThread(state_);
}

}  // namespace bayplan::swap

#include "recompute/lock.h"

#include <pybind11/pybind11.h>

#include <chrono>
#include <thread>

namespace bayplan::recompute {

// Two threads seldom ask one tape at once; then one waits for kernels that run again.
void TapeLock::wait() {
  constexpr int kTurns = 16;
  PyThreadState* const python = Py_IsInitialized() != 0 && PyGILState_Check() != 0 ? PyEval_SaveThread() : nullptr;
  for (int turn = 0; !try_lock(); ++turn) {
    if (turn < kTurns) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }
  if (python != nullptr) PyEval_RestoreThread(python);
}

}  // namespace bayplan::recompute

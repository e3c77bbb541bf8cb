// Python's lock, and waits for other threads.
#pragma once

#include <Python.h>

namespace bayplan::swap {

// While one exists, its thread does not hold the GIL. Most operators run without it, but not all that Python calls
// (`torch.tensor`), and PyTorch takes it inside operators to count references: who waited for another thread's operator
// and held the GIL would wait for a thread that waits for him. Never while the store is held: whoever has the GIL may
// wait for the store, and the GIL is asked for as this ends.
class WithoutGil {
 public:
  WithoutGil();
  ~WithoutGil();
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* state_;  // null if the thread did not hold it
};

}  // namespace bayplan::swap

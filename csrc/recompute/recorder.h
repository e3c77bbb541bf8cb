// Which tape the calling thread records on.
#pragma once

#include <ATen/record_function.h>

#include <memory>

#include "recompute/tape.h"

namespace bayplan::recompute {

// The dispatcher's way to the recorder. Above autograd and autocast, like PyTorch's observers, but it is taken only
// while its thread records, and only for operators that may be recorded.
constexpr c10::DispatchKey kRecording = c10::DispatchKey::TESTING_ONLY_GenericMode;

// From now on the operators of the calling thread go to the tape; throws where another one records.
void start_recording(std::shared_ptr<Tape> tape);
// False where nothing was recorded.
bool stop_recording();
// Operators of the calling thread go the recorder's way, and nothing is recorded: what PyTorch takes for that alone.
void hold_idle_recorder(bool hold);

// Autograd saves a tensor: `packed` is what it holds in its place.
void pack(Packed& packed, const at::Tensor& tensor);

// The calling thread's tape; null where none records.
Tape* recording_tape();
// An operator of the calling thread begins, and nobody has looked yet for what of its arguments is out: if it will be a
// node of the tape, the tape pauses; what is done then is not recorded.
void pause_before(const at::RecordFunction& frame);
// Whether the thread is in an operator that its tape will have as one node.
bool inside_node();

// While one lives, its thread records nothing: it runs nodes again.
class NotRecording {
 public:
  NotRecording();
  ~NotRecording();
  NotRecording(const NotRecording&) = delete;
  NotRecording& operator=(const NotRecording&) = delete;

  static bool on();
};

}  // namespace bayplan::recompute

// Streams, events and copies: all that the swap engine knows of a device. Nothing here names CUDA.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "profiler/events.h"

namespace bayplan::swap {

// The two copy streams of a device: one out to the host, one in. Made on first use, the same for the whole process.
struct Lanes {
  c10::Stream out;
  c10::Stream in;
};
const Lanes& lanes_of(c10::Device device);

c10::Stream current_stream(c10::Device device);

// An event at the end of what the stream holds now.
EventPtr record_on(c10::Stream stream);

// Bytes of device memory as a tensor that does not own them.
at::Tensor bytes_at(void* address, size_t bytes, c10::Device device);

// Copies asynchronously on a stream; the caller keeps both ends alive until an event recorded after it.
void copy_on(c10::Stream stream, const at::Tensor& to, const at::Tensor& from);

// Inside, the thread's operators are the engine's own: no observer, autograd, autocast, Python mode or transform of
// torch.func sees them.
class Quiet {
 public:
  Quiet();

 private:
  at::DisableRecordFunctionGuard unobserved_;
  c10::impl::ExcludeDispatchKeyGuard plain_;
};

}  // namespace bayplan::swap

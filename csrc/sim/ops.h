// The operators that device sim implements itself: memory, copies between host and device, attention.
#pragma once
#include <ATen/core/Tensor.h>
#include <torch/library.h>

namespace sim {

// A copy of a host tensor on the current device; the host waits for it.
at::Tensor to_sim(const at::Tensor& host);
// Grows or shrinks a storage of sim, as `untyped_storage().resize_` asks.
void resize_storage(const c10::Storage& storage, size_t bytes);
void register_ops(torch::Library& device, torch::Library& autograd);

}  // namespace sim

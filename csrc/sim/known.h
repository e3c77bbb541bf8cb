// Numbers that are known although tensors have shapes only: small integers that came from the host, or from other
// devices' such ones by a collective, and that no kernel has written since. Programs send each other sizes so: DDP its
// parameters' shapes and its buckets, and asks for them before it goes on.
#pragma once
#include <ATen/core/Tensor.h>

#include <optional>

namespace sim {

// From now on the device's tensor is known to hold the host's numbers, if it is all of its storage, integers, and
// small.
void keep_known(const at::Tensor& device, const at::Tensor& host);
// The tensor's numbers on the CPU, a copy; none where they are not known.
std::optional<at::Tensor> known(const at::Tensor& device);
// The storage at this address is written, or freed.
void forget_known(const void* data);
void forget_all_known();

}  // namespace sim

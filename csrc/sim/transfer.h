// Copies between host and device, on a device, between devices, and the host's look at one number.
#pragma once
#include <ATen/core/Tensor.h>

namespace sim {

at::Tensor copy_from(const at::Tensor& source, const at::Tensor& target, bool non_blocking);
at::Tensor copy_from_and_resize(const at::Tensor& source, const at::Tensor& target);
at::Scalar local_scalar(const at::Tensor& tensor);
// Copies the bytes of a CPU tensor into another one, at once and seen by nobody.
void move_bytes(const at::Tensor& source, const at::Tensor& target);
// A CPU tensor's bytes in one that Python does not know.
at::Tensor host_copy(const at::Tensor& tensor);

}  // namespace sim

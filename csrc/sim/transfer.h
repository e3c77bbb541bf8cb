// Copies between host and device, on the device, and the host's look at one number.
#pragma once
#include <ATen/core/Tensor.h>

namespace sim {

at::Tensor copy_from(const at::Tensor& source, const at::Tensor& target, bool non_blocking);
at::Tensor copy_from_and_resize(const at::Tensor& source, const at::Tensor& target);
at::Scalar local_scalar(const at::Tensor& tensor);

}  // namespace sim

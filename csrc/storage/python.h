// Bindings of the store.
#pragma once

#include <c10/core/StorageImpl.h>
#include <torch/csrc/utils/pybind.h>

#include <functional>

namespace bayplan::swap {

void bind_storage(pybind11::module_& module);

// A strided tensor's storage; throws for other tensors, which have none of their own.
c10::StorageImpl& storage_of(const at::Tensor& tensor);

// Runs what may throw, so that an OutOfMemoryError arrives in Python as torch.OutOfMemoryError, and so on.
void raise_in_python(const std::function<void()>& throwing);

}  // namespace bayplan::swap

// Shapes without bytes: tensors of device sim have addresses and sizes, and nobody reads or writes what is there.
//
// Kernels run as PyTorch's shape functions (dispatch key Meta), which know what a result looks like and compute
// nothing. Time, memory and order are modelled as ever; what a kernel takes for itself while it runs comes from a table
// (`temporaries`).
#pragma once
#include <ATen/core/stack.h>

#include "sim/op_info.h"

namespace sim {

struct ShapeMode {
  bool on = false;
  double item_value = 1;  // Every number that the program reads of a tensor.
};

bool shapes_only();
void set_shape_mode(ShapeMode mode);
// What the program reads of a tensor of this type.
at::Scalar item_of(c10::ScalarType dtype);

// Throws where this call has no shape without bytes: its size or its answer depends on data, or it is sparse.
void require_shape(const OpInfo& info, c10::DispatchKey key, c10::ArrayRef<c10::IValue> arguments);
// Replaces arguments of device meta by the results that the operator would have. Python code may run, so that nobody
// may hold the machine's lock.
void run_shape_function(const OpInfo& info, const c10::OperatorHandle& op, torch::jit::Stack& stack);

}  // namespace sim

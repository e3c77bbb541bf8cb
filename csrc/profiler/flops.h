// Floating-point operations of the operators that are made of products; a product and its sum count as two.
#pragma once

#include <ATen/core/ivalue.h>

#include "profiler/operators.h"

#include <cstdint>

namespace bayplan {

// The count for one call with these arguments; 0 where the rule is `kNone` or an argument is not what the rule expects.
// Causal attention counts whole, as PyTorch's own counter does.
int64_t count_flops(FlopRule rule, c10::ArrayRef<const c10::IValue> arguments);

}  // namespace bayplan

// What this machine's kernels take for themselves, where the table of temporaries was not measured with it or with a
// call's sizes.
//
// oneDNN cuts what it computes in half precision into blocks as the CPU's units want them: with AMX otherwise than
// without. Rather than a table for each CPU there is a trial: the kernel runs once on the host, on operands of these
// shapes with whatever is in them.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <vector>

#include "sim/op_info.h"
#include "sim/temporaries.h"

namespace sim {

// Whether a call is one whose blocks depend on the CPU.
bool has_own_blocks(const CallShape& call);

// What such a kernel takes beside its results, by a trial; the same shapes are tried once. None where the table was
// measured with these sizes and this CPU takes what it says of one product, and where a trial would take long: then
// the table has to do.
std::optional<size_t> tried_bytes(const OpInfo& info, const c10::OperatorHandle& op, const CallShape& call,
                                  const std::vector<c10::IValue>& arguments, c10::ArrayRef<c10::IValue> results);

}  // namespace sim

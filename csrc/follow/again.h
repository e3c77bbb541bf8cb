// Operators that run out of memory, run again. Once one has failed, its arguments are there, what it made is not,
// and all else may leave or move: so the follower makes place, and it begins anew.
//
// Only what can be done twice is: an operator of PyTorch's own that returns tensors and writes to none of its arguments
// (neither by its schema nor in spite of it), none of which Python or a transform takes apart, while no hook is told of
// the tensors that autograd saves. Random numbers are drawn as they were the first time.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <string>

namespace bayplan::swap {

// The dispatcher's way here: above autograd and autocast, below PyTorch's observers and the recorder of tapes. It takes
// 0.15 us an operator where nothing is followed, and is taken only by threads that ask for it, and those that autograd
// starts for them.
constexpr c10::DispatchKey kAgain = c10::DispatchKey::TESTING_ONLY_GenericWrapper;

// From the next operator on those of the calling thread run again if need be, or no more.
void run_again(bool on);
bool runs_again();

// Operators that write arguments in spite of their schema, by name without overload.
void set_secret_writer(const std::string& name);
// Whether an operator can be done twice, as far as its schema tells and no such writer is named.
bool is_repeatable(const c10::OperatorHandle& op);

}  // namespace bayplan::swap

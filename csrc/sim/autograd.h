// Autograd's device threads.
#pragma once
#include <cstddef>

namespace sim {

// Lets the autograd engine serve so many devices, by a thread for each. It counts devices once, when it first runs: a
// process without another accelerator whose first backward came before device sim would have no thread for it, nor
// would devices that came later. No backward pass may run meanwhile.
void serve_devices(size_t count);

// Gives the autograd nodes of all threads that use the device one order in time. PyTorch numbers them by thread, and
// runs the highest number first: nodes that a backward pass makes on the device's thread (second derivatives,
// recomputation) would come in another order than on the CPU, where all of them are of one thread, and sums of
// gradients would differ in their last bits. Called wherever a thread is about to use the device,
// and on the thread that ran a backward pass when it is over: its next node is numbered before its kernel is called.
void follow_sequence();

}  // namespace sim

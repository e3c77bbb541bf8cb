// Autograd's device threads.
#pragma once

namespace sim {

// Lets the autograd engine serve the devices that are registered now. It counts devices once, when it first runs: a
// process without another accelerator whose first backward came before device sim would have no thread for it.
void serve_registered_devices();

}  // namespace sim

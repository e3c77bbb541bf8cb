// Streams and events of device sim, as the rest of PyTorch asks for them.
#pragma once

namespace sim {

// For the process's life; call once.
void register_guard();

}  // namespace sim

// Streams and events of device sim, as the rest of PyTorch asks for them.
#pragma once
#include <cstddef>

namespace sim {

// For the process's life; call once.
void register_guard();

// The device's host waits for all its streams. Throws in mode raise where one of its operations raced.
void synchronize_device(size_t device);

}  // namespace sim

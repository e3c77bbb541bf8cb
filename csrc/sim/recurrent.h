// Recurrent networks: the CPU's way through them, where PyTorch picks another by the device's type.
#pragma once
#include <c10/core/ScalarType.h>
#include <torch/library.h>

namespace sim {

// For both keys: the general implementations are made of other operators, which autograd records.
void register_recurrent(torch::Library& device, torch::Library& autograd);

// The workspace that oneDNN keeps of one LSTM layer in one direction for its backward pass, trained or not.
int64_t lstm_workspace_bytes(int64_t places, int64_t batch, int64_t features, int64_t hidden, c10::ScalarType dtype);

}  // namespace sim

// Recurrent networks step by step, in the CPU's formulas.
#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

namespace sim {

// What a network is asked to do besides its numbers.
struct RecurrentShape {
  bool has_biases;
  int64_t layers;
  double dropout;
  bool train;
  bool bidirectional;
};

// One layer's weights in one direction. The biases, and the projection of the output, may be undefined.
struct RecurrentWeights {
  at::Tensor input, hidden, input_bias, hidden_bias, projection;
  at::Tensor gates_of_input(const at::Tensor& tensor) const;
  at::Tensor gates_of_hidden(const at::Tensor& tensor) const;
};

// What a layer remembers: its output, and an LSTM's cell after it.
using RecurrentState = std::vector<at::Tensor>;

// One step: the state after it, from what the input gives to the gates and the state before.
using RecurrentCell = RecurrentState (*)(const at::Tensor& gates, const RecurrentState& state,
                                         const RecurrentWeights& weights);
RecurrentState tanh_cell(const at::Tensor& gates, const RecurrentState& state, const RecurrentWeights& weights);
RecurrentState relu_cell(const at::Tensor& gates, const RecurrentState& state, const RecurrentWeights& weights);
RecurrentState gru_cell(const at::Tensor& gates, const RecurrentState& state, const RecurrentWeights& weights);
RecurrentState lstm_cell(const at::Tensor& gates, const RecurrentState& state, const RecurrentWeights& weights);

// All layers over a sequence: its output, and the last states, each stacked by layer and direction. `input` is time by
// batch by features, or with `batch_sizes` packed: the rows of each step, longest sequences first. `first` holds the
// initial states, stacked alike.
struct RecurrentResult {
  at::Tensor output;
  RecurrentState last;
};
RecurrentResult run_steps(const at::Tensor& input, const at::Tensor& batch_sizes, at::TensorList first,
                          at::TensorList weights, const RecurrentShape& shape, RecurrentCell cell);

}  // namespace sim

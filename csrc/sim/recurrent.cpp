#include "sim/recurrent.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/mkldnn_rnn_layer.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <tuple>
#include <vector>

#include "sim/recurrent_steps.h"

namespace sim {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;
using Two = std::tuple<Tensor, Tensor>;
using Three = std::tuple<Tensor, Tensor, Tensor>;

constexpr int64_t kLstm = 2;  // The kind of recurrent cell, as oneDNN numbers them.

constexpr int64_t kWorkspacePage = 4096, kLine = 64;  // What oneDNN rounds parts of a workspace, and rows, up to.

int64_t rounded(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

// A row's bytes: whole cache lines, and one more where rows would lie a multiple of 256 elements apart (get_good_ld in
// oneDNN's rnn_utils).
int64_t row_bytes(int64_t elements, int64_t item) {
  const int64_t row = rounded(elements, kLine / item);
  return (row % 256 == 0 ? row + kLine / item : row) * item;
}

// Whether oneDNN computes in that half precision on this CPU.
bool runs_natively(const char* question) {
  const auto schema = c10::Dispatcher::singleton().findSchema({question, ""});
  return schema.has_value() && schema->typed<bool()>().call();
}

// The data types in which the CPU runs whole layers in oneDNN; in the half ones only where it has instructions for
// them.
bool has_layers_of(at::ScalarType dtype) {
  static const bool bfloat16 = runs_natively("mkldnn::_is_mkldnn_bf16_supported");
  static const bool half = runs_natively("mkldnn::_is_mkldnn_fp16_supported");
  if (dtype == at::kHalf) return half && !at::GradMode::is_enabled();
  return dtype == at::kFloat || (dtype == at::kBFloat16 && bfloat16);
}

bool runs_in_layers(const Tensor& input, at::TensorList hidden) {
  const bool projects = hidden[0].size(2) != hidden[1].size(2);
  return at::globalContext().userEnabledMkldnn() && has_layers_of(input.scalar_type()) && input.numel() != 0 &&
         !projects;
}

Three run_layer(const Tensor& input, at::TensorList weights, const Tensor& hidden, const Tensor& cell, bool reverse,
                bool batch_first, const RecurrentShape& shape) {
  auto bias = [&](size_t i) { return shape.has_biases ? weights[i] : at::zeros_like(weights[i - 2]); };
  auto [output, hy, cy, workspace] = at::mkldnn_rnn_layer(
      input, weights[0], weights[1], bias(2), bias(3), hidden, cell, reverse, /*batch_sizes=*/{}, kLstm, hidden.size(1),
      shape.layers, shape.has_biases, shape.bidirectional, batch_first, shape.train);
  return {output, hy, cy};
}

Three lstm_in_layers(const Tensor& batch, at::TensorList hidden, at::TensorList weights, bool batch_first,
                     const RecurrentShape& shape) {
  const size_t directions = shape.bidirectional ? 2 : 1, each = shape.has_biases ? 4 : 2;
  Tensor input = (batch_first ? batch.transpose(0, 1) : batch).contiguous();
  const Tensor hx = hidden[0].contiguous(), cx = hidden[1].contiguous();
  std::vector<Tensor> hys, cys;
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    std::vector<Tensor> outputs;
    for (size_t direction = 0; direction < directions; ++direction) {
      const size_t index = hys.size();
      auto [output, hy, cy] = run_layer(input, weights.slice(index * each, each), hx[static_cast<int64_t>(index)],
                                        cx[static_cast<int64_t>(index)], direction > 0, batch_first, shape);
      outputs.push_back(output);
      hys.push_back(hy);
      cys.push_back(cy);
    }
    input = directions == 1 ? outputs[0] : at::cat(outputs, -1);
    if (shape.dropout != 0 && shape.train && layer + 1 < shape.layers) input = at::dropout(input, shape.dropout, true);
  }
  return {batch_first ? input.transpose(0, 1) : input, at::stack(hys, 0), at::stack(cys, 0)};
}

Three lstm(const Tensor& input, at::TensorList hidden, at::TensorList weights, bool has_biases, int64_t layers,
           double dropout, bool train, bool bidirectional, bool batch_first) {
  TORCH_CHECK(hidden.size() == 2, "lstm expects two hidden states");
  const RecurrentShape shape{has_biases, layers, dropout, train, bidirectional};
  if (runs_in_layers(input, hidden)) return lstm_in_layers(input, hidden, weights, batch_first, shape);
  const auto [output, last] =
      run_steps(batch_first ? input.transpose(0, 1) : input, {}, hidden, weights, shape, &lstm_cell);
  return {batch_first ? output.transpose(0, 1) : output, last[0], last[1]};
}

Three lstm_packed(const Tensor& data, const Tensor& batch_sizes, at::TensorList hidden, at::TensorList weights,
                  bool has_biases, int64_t layers, double dropout, bool train, bool bidirectional) {
  TORCH_CHECK(hidden.size() == 2, "lstm expects two hidden states");
  const auto [output, last] =
      run_steps(data, batch_sizes, hidden, weights, {has_biases, layers, dropout, train, bidirectional}, &lstm_cell);
  return {output, last[0], last[1]};
}

template <RecurrentCell cell>
Two network(const Tensor& input, const Tensor& hidden, at::TensorList weights, bool has_biases, int64_t layers,
            double dropout, bool train, bool bidirectional, bool batch_first) {
  const auto [output, last] = run_steps(batch_first ? input.transpose(0, 1) : input, {}, hidden, weights,
                                        {has_biases, layers, dropout, train, bidirectional}, cell);
  return {batch_first ? output.transpose(0, 1) : output, last[0]};
}

template <RecurrentCell cell>
Two packed_network(const Tensor& data, const Tensor& batch_sizes, const Tensor& hidden, at::TensorList weights,
                   bool has_biases, int64_t layers, double dropout, bool train, bool bidirectional) {
  const auto [output, last] =
      run_steps(data, batch_sizes, hidden, weights, {has_biases, layers, dropout, train, bidirectional}, cell);
  return {output, last[0]};
}

RecurrentWeights weights_of(const Tensor& input, const Tensor& hidden, const OptionalTensor& input_bias,
                            const OptionalTensor& hidden_bias) {
  return {input, hidden, input_bias.value_or(Tensor()), hidden_bias.value_or(Tensor()), Tensor()};
}

Tensor one_gru_step(const Tensor& input, const Tensor& hidden, const Tensor& w_ih, const Tensor& w_hh,
                    const OptionalTensor& b_ih, const OptionalTensor& b_hh) {
  const RecurrentWeights weights = weights_of(w_ih, w_hh, b_ih, b_hh);
  return gru_cell(weights.gates_of_input(input), {hidden}, weights)[0];
}

Two one_lstm_step(const Tensor& input, at::TensorList hidden, const Tensor& w_ih, const Tensor& w_hh,
                  const OptionalTensor& b_ih, const OptionalTensor& b_hh) {
  TORCH_CHECK(hidden.size() == 2, "lstm_cell expects two hidden states");
  const RecurrentWeights weights = weights_of(w_ih, w_hh, b_ih, b_hh);
  const RecurrentState after = lstm_cell(weights.gates_of_input(input), hidden.vec(), weights);
  return {after[0], after[1]};
}

}  // namespace

// Pages for the gates and the hidden states of every step, and for what enters and leaves each of two layers, before
// the first step too: states, cells, and the gradients of input, state and cell (set_offsets in oneDNN's rnn_utils).
int64_t lstm_workspace_bytes(int64_t places, int64_t batch, int64_t features, int64_t hidden, c10::ScalarType dtype) {
  const auto item = static_cast<int64_t>(c10::elementSize(dtype));
  constexpr int64_t kFloat = 4;  // Gradients are single precision.
  const int64_t steps = places * batch, states = 2 * (places + 1) * batch, widest = std::max(features, hidden);
  int64_t bytes = 0;
  for (const int64_t part :
       {steps * row_bytes(4 * hidden, item), steps * row_bytes(hidden, item), states * row_bytes(widest, item),
        states * hidden * item, states * row_bytes(widest, kFloat), states * row_bytes(widest, kFloat),
        states * hidden * kFloat})
    bytes += rounded(part, kWorkspacePage);
  return bytes;
}

void register_recurrent(torch::Library& device, torch::Library& autograd) {
  for (torch::Library* library : {&device, &autograd}) {
    library->impl("lstm.input", TORCH_FN(lstm));
    library->impl("lstm.data", TORCH_FN(lstm_packed));
    library->impl("gru.input", TORCH_FN(network<&gru_cell>));
    library->impl("gru.data", TORCH_FN(packed_network<&gru_cell>));
    library->impl("rnn_tanh.input", TORCH_FN(network<&tanh_cell>));
    library->impl("rnn_tanh.data", TORCH_FN(packed_network<&tanh_cell>));
    library->impl("rnn_relu.input", TORCH_FN(network<&relu_cell>));
    library->impl("rnn_relu.data", TORCH_FN(packed_network<&relu_cell>));
    library->impl("gru_cell", TORCH_FN(one_gru_step));
    library->impl("lstm_cell", TORCH_FN(one_lstm_step));
  }
}

}  // namespace sim

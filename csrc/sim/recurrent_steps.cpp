#include "sim/recurrent_steps.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tanh.h>

#include <algorithm>

namespace sim {
namespace {

using at::Tensor;
using State = RecurrentState;
using Weights = RecurrentWeights;

std::vector<Weights> gathered(at::TensorList weights, bool has_biases, bool projects) {
  const size_t each = 2 + (has_biases ? 2 : 0) + (projects ? 1 : 0);
  TORCH_CHECK(weights.size() % each == 0, "got an incorrect number of RNN parameters");
  std::vector<Weights> all;
  for (size_t at = 0; at < weights.size(); at += each) {
    const size_t last = at + each - 1;
    all.push_back({weights[at], weights[at + 1], has_biases ? weights[at + 2] : Tensor(),
                   has_biases ? weights[at + 3] : Tensor(), projects ? weights[last] : Tensor()});
  }
  return all;
}

State rows(const State& state, int64_t from, int64_t to) {
  State part;
  for (const Tensor& tensor : state) part.push_back(tensor.narrow(0, from, to - from));
  return part;
}

State joined(const std::vector<State>& states) {
  State all;
  for (size_t i = 0; i < states.front().size(); ++i) {
    std::vector<Tensor> parts;
    for (const State& state : states) parts.push_back(state[i]);
    all.push_back(at::cat(parts, 0));
  }
  return all;
}

// One layer in one direction.
struct Layer {
  const Weights& weights;
  RecurrentCell cell;
  bool reversed;

  RecurrentResult over(const Tensor& input, const State& first) const {
    std::vector<Tensor> steps = weights.gates_of_input(input).unbind(0), outputs;
    TORCH_CHECK(!steps.empty(), "Expected sequence length to be larger than 0 in RNN");
    if (reversed) std::reverse(steps.begin(), steps.end());
    State state = first;
    for (const Tensor& step : steps) outputs.push_back((state = cell(step, state, weights))[0]);
    if (reversed) std::reverse(outputs.begin(), outputs.end());
    return {at::stack(outputs, 0), state};
  }

  // Sequences end one after the other: their states are put aside.
  RecurrentResult over_packed(const Tensor& input, at::IntArrayRef sizes, const State& first) const {
    const Tensor gates = weights.gates_of_input(input);
    std::vector<Tensor> outputs;
    std::vector<State> ended;
    State state = first;
    int64_t offset = 0, running = sizes[0];
    for (const int64_t size : sizes) {
      if (size < running) {
        ended.push_back(rows(state, size, running));
        state = rows(state, 0, size);
      }
      running = size;
      outputs.push_back((state = cell(gates.narrow(0, offset, size), state, weights))[0]);
      offset += size;
    }
    ended.push_back(state);
    std::reverse(ended.begin(), ended.end());
    return {at::cat(outputs, 0), joined(ended)};
  }

  // Backwards they begin one after the other.
  RecurrentResult over_packed_reversed(const Tensor& input, at::IntArrayRef sizes, const State& first) const {
    const Tensor gates = weights.gates_of_input(input);
    std::vector<Tensor> outputs;
    int64_t offset = gates.size(0), running = sizes.back();
    State state = rows(first, 0, running);
    for (auto size = sizes.rbegin(); size != sizes.rend(); ++size) {
      if (*size > running) state = joined({state, rows(first, running, *size)});
      running = *size;
      offset -= *size;
      outputs.push_back((state = cell(gates.narrow(0, offset, *size), state, weights))[0]);
    }
    std::reverse(outputs.begin(), outputs.end());
    return {at::cat(outputs, 0), state};
  }
};

RecurrentResult run_layer(const Layer& layer, const Tensor& input, const Tensor& batch_sizes, const State& first) {
  if (!batch_sizes.defined()) return layer.over(input, first);
  TORCH_CHECK(batch_sizes.is_cpu() && batch_sizes.scalar_type() == at::kLong && batch_sizes.numel() > 0,
              "batch_sizes of a packed sequence must be an int64 tensor on the CPU with at least one step");
  const Tensor sizes = batch_sizes.contiguous();
  const at::IntArrayRef steps(sizes.const_data_ptr<int64_t>(), sizes.numel());
  return layer.reversed ? layer.over_packed_reversed(input, steps, first) : layer.over_packed(input, steps, first);
}

}  // namespace

Tensor RecurrentWeights::gates_of_input(const Tensor& tensor) const { return at::linear(tensor, input, input_bias); }
Tensor RecurrentWeights::gates_of_hidden(const Tensor& tensor) const { return at::linear(tensor, hidden, hidden_bias); }

State tanh_cell(const Tensor& gates, const State& state, const Weights& weights) {
  return {at::tanh(weights.gates_of_hidden(state[0]).add_(gates))};
}

State relu_cell(const Tensor& gates, const State& state, const Weights& weights) {
  return {at::relu(weights.gates_of_hidden(state[0]).add_(gates))};
}

State gru_cell(const Tensor& gates, const State& state, const Weights& weights) {
  const auto from_input = gates.unsafe_chunk(3, 1);
  const auto from_hidden = weights.gates_of_hidden(state[0]).unsafe_chunk(3, 1);
  const Tensor reset = from_hidden[0].add_(from_input[0]).sigmoid_();
  const Tensor update = from_hidden[1].add_(from_input[1]).sigmoid_();
  const Tensor fresh = from_input[2].add(from_hidden[2].mul_(reset)).tanh_();
  return {(state[0] - fresh).mul_(update).add_(fresh)};
}

State lstm_cell(const Tensor& gates, const State& state, const Weights& weights) {
  const auto parts = weights.gates_of_hidden(state[0]).add_(gates).unsafe_chunk(4, 1);
  const Tensor in = parts[0].sigmoid_(), forget = parts[1].sigmoid_();
  const Tensor fresh = parts[2].tanh_(), out = parts[3].sigmoid_();
  const Tensor cell = (forget * state[1]).add_(in.mul(fresh));
  const Tensor hidden = out * cell.tanh();
  return {weights.projection.defined() ? at::matmul(hidden, weights.projection.t()) : hidden, cell};
}

RecurrentResult run_steps(const Tensor& input, const Tensor& batch_sizes, at::TensorList first, at::TensorList weights,
                          const RecurrentShape& shape, RecurrentCell cell) {
  const bool projects = first.size() == 2 && first[0].size(2) != first[1].size(2);
  const std::vector<Weights> all = gathered(weights, shape.has_biases, projects);
  std::vector<std::vector<Tensor>> firsts, lasts(first.size());
  for (const Tensor& stacked : first) firsts.push_back(stacked.unbind(0));
  const size_t directions = shape.bidirectional ? 2 : 1;
  Tensor output = input;
  for (int64_t number = 0; number < shape.layers; ++number) {
    std::vector<Tensor> outputs;
    for (size_t direction = 0; direction < directions; ++direction) {
      const size_t index = static_cast<size_t>(number) * directions + direction;
      State state;
      for (const auto& each : firsts) state.push_back(each.at(index));
      const auto [ran, last] = run_layer({all.at(index), cell, direction > 0}, output, batch_sizes, state);
      outputs.push_back(ran);
      for (size_t i = 0; i < last.size(); ++i) lasts[i].push_back(last[i]);
    }
    output = directions == 1 ? outputs[0] : at::cat(outputs, -1);
    if (shape.dropout != 0 && shape.train && number + 1 < shape.layers)
      output = at::dropout(output, shape.dropout, true);
  }
  RecurrentResult result{output, {}};
  for (const auto& each : lasts) result.last.push_back(at::stack(each, 0));
  return result;
}

}  // namespace sim

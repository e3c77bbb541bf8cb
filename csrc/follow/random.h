// What a generator's next random numbers follow from.
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <optional>

namespace bayplan {

// A generator as it was. Of the CPU's, and of those that stand on one (the simulated devices'), the engine itself: as a
// tensor it costs a hundred times as much to take.
class RandomState {
 public:
  explicit RandomState(const at::Generator& generator);
  void give_back(const at::Generator& generator) const;

 private:
  std::optional<at::mt19937> engine_;
  std::optional<float> next_float_;  // normally distributed numbers come in pairs
  std::optional<double> next_double_;
  at::Tensor other_;  // the state of another kind of generator
};

}  // namespace bayplan

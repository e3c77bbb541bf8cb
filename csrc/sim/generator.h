// Random numbers of devices sim: the CPU's Mersenne twister, so that the same seed gives the same numbers on both. The
// first device draws from the CPU's own default generator, each other one from one of its own.
#pragma once
#include <ATen/core/Generator.h>
#include <ATen/core/stack.h>

namespace sim {

// Of a device: it stands for the CPU's default generator, or for one that began with that one's seed.
const at::Generator& default_generator(size_t device);
at::Generator new_generator(size_t device);
// The CPU generator that a generator of device sim stands for; throws for one of another device.
at::Generator cpu_generator(const at::Generator& generator);

// The CPU's kernel of native_dropout, which takes no generator, with this one: arguments by results.
void run_native_dropout(torch::jit::Stack& stack, const at::Generator& cpu);

}  // namespace sim

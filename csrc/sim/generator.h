// Random numbers of device sim: the CPU's Mersenne twister, so that the same seed gives the same numbers on both.
#pragma once
#include <ATen/core/Generator.h>

namespace sim {

// The device's default generator is the CPU's default one.
const at::Generator& default_generator();
at::Generator new_generator();
// The CPU generator that a generator of device sim stands for; throws for one of another device.
at::Generator cpu_generator(const at::Generator& generator);

}  // namespace sim

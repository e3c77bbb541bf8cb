#include "sim/cost.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>

namespace sim {

const char* name_of(OpClass op_class) {
  static constexpr const char* kNames[] = {"matmul",    "attention", "convolution", "elementwise",
                                           "reduction", "copy",      "other"};
  return kNames[static_cast<size_t>(op_class)];
}

Nanoseconds DeviceModel::kernel_ns(OpClass op_class, c10::ScalarType dtype, int64_t flops, int64_t bytes) const {
  const double reached = efficiency[static_cast<size_t>(op_class)];
  auto rate = flops_per_s.find(dtype);
  if (rate == flops_per_s.end()) rate = flops_per_s.find(c10::ScalarType::Float);
  double compute = 0;
  if (flops > 0 && rate != flops_per_s.end())
    compute = std::ceil(static_cast<double>(flops) * 1e9 / (rate->second * reached));
  const double memory = std::ceil(static_cast<double>(bytes) * 1e9 / (bytes_per_s * reached));
  return static_cast<Nanoseconds>(std::max(compute, memory));
}

Nanoseconds LinkModel::transfer_ns(size_t bytes) const {
  const auto scaled = static_cast<unsigned __int128>(bytes) * 1'000'000'000u;
  return latency_ns + static_cast<Nanoseconds>((scaled + bytes_per_s - 1) / bytes_per_s);
}

Nanoseconds DeviceModel::with_noise(Nanoseconds duration, size_t device, uint64_t index) const {
  if (noise == 0) return duration;
  // splitmix64 of seed, device and index
  uint64_t x = seed * 0x9E3779B97F4A7C15ull + device * 0xA24BAED4963EE407ull + (index + 1) * 0xD1B54A32D192ED03ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  x ^= x >> 31;
  const double uniform = static_cast<double>(x >> 11) * 0x1.0p-53;
  return static_cast<Nanoseconds>(std::llround(static_cast<double>(duration) * (1 + noise * (2 * uniform - 1))));
}

}  // namespace sim

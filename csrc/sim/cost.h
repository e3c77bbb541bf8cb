// The roofline: how long a kernel or a transfer takes on the modelled device.
#pragma once
#include <c10/core/ScalarType.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "sim/clock.h"

namespace sim {

enum class OpClass : uint8_t { kMatmul, kAttention, kConvolution, kElementwise, kReduction, kCopy, kOther, kCount };
const char* name_of(OpClass op_class);

enum class Direction : uint8_t { kToDevice, kToHost };

// One direction of a link. Links on one lane carry one transfer at a time, between them all.
struct LinkModel {
  uint64_t bytes_per_s = 1;
  Nanoseconds latency_ns = 0;
  size_t lane = 0;
  // latency + bytes / rate, rounded up to a nanosecond.
  Nanoseconds transfer_ns(size_t bytes) const;
};

// The plain numbers of a device in a hardware file.
struct DeviceModel {
  std::map<c10::ScalarType, double> flops_per_s;
  double bytes_per_s = 1;
  Nanoseconds launch_ns = 0;
  std::array<double, static_cast<size_t>(OpClass::kCount)> efficiency{};
  std::array<LinkModel, 2> link;      // By Direction.
  std::map<size_t, LinkModel> peers;  // By the device that it leads to; to others copies go through the host.
  double noise = 0;                   // A kernel's time is multiplied by a uniform value of [1 - noise, 1 + noise].
  uint64_t seed = 0;
  Nanoseconds event_query_ns = 0;  // What the allocator's look at one event costs the host.

  // max(flops / (rate * efficiency), bytes / (bandwidth * efficiency)), each rounded up to a nanosecond.
  Nanoseconds kernel_ns(OpClass op_class, c10::ScalarType dtype, int64_t flops, int64_t bytes) const;
  // A duration with the seeded noise of a device's kernel number `index`.
  Nanoseconds with_noise(Nanoseconds duration, size_t device, uint64_t index) const;
};

}  // namespace sim

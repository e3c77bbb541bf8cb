// What an operator means to the modelled device: its class, what it reads and writes, its arithmetic, its waits.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdint>
#include <vector>

#include "sim/cost.h"

namespace sim {

enum Use : uint8_t { kRead = 1, kWrite = 2 };

// Floating-point operations of one call, by the formulas of torch.utils.flop_counter.
using FlopFormula = int64_t (*)(c10::ArrayRef<c10::IValue> arguments, c10::ArrayRef<c10::IValue> results);

struct OpInfo {
  const char* name;  // Without the namespace "aten::".
  OpClass op_class;
  FlopFormula flops = nullptr;      // Null: the bytes alone decide the time.
  std::vector<uint8_t> uses;        // By argument, bits of Use.
  bool view = false;                // Only describes memory: costs nothing on the device.
  bool waits = false;               // The host needs the result, or its size: it waits for the stream.
  bool gathers = false;             // Reads of its first tensor only as many bytes as it returns.
  bool takes_host_indices = false;  // Moves index tensors from the host by itself.

  explicit OpInfo(const c10::OperatorHandle& op);
};

}  // namespace sim

// What an operator means to the modelled device: its class, what it reads and writes, its arithmetic, its waits.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdint>
#include <optional>
#include <string>
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
  bool sized_by_data = false;       // How large its result is depends on data.
  bool answers = false;             // It returns no tensor, but what the data say.
  std::optional<size_t> generator;  // The argument that its random numbers come from; none given: the default.
  bool drops_out = false;           // native_dropout, which draws without such an argument.

  explicit OpInfo(const c10::OperatorHandle& op);
  // Whether this call writes an argument that the schema does not say it writes.
  bool writes_undeclared(size_t argument, c10::ArrayRef<c10::IValue> arguments) const {
    return (undeclared >> argument & 1) != 0 && (!condition || arguments[*condition].toBool());
  }

 private:
  uint64_t undeclared = 0;          // By argument, a bit.
  std::optional<size_t> condition;  // The argument that must be true for that.
};

// An operator that writes arguments that its schema does not say it writes (runtime/device/undeclared_writes.py).
struct UndeclaredWrite {
  std::string op;  // With its namespace, without its overload.
  std::vector<std::string> arguments;
  std::optional<std::string> condition;
};
// For operators that are looked at from now on.
void set_undeclared_writes(std::vector<UndeclaredWrite> writes);

}  // namespace sim

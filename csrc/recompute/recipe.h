// What replaying an operator takes to know of it, beyond what profiler/operators.h says.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "profiler/operators.h"

namespace bayplan::recompute {

// Some of an operator's arguments: the dispatcher takes none with more than 64.
class Places {
 public:
  void add(size_t place) { bits_ |= uint64_t{1} << place; }
  bool has(size_t place) const { return (bits_ >> place & 1) != 0; }
  bool any() const { return bits_ != 0; }

 private:
  uint64_t bits_ = 0;
};

// One value for each operator and overload, alive until exit.
struct Recipe {
  const OperatorInfo* info = nullptr;
  std::optional<c10::OperatorHandle> op = {};
  bool random = false;                     // draws from a generator: the device's, or the one that it is given
  std::optional<size_t> dropout = {};      // the argument that says which share it drops: with 0 it draws nothing
  bool allocates = false;                  // makes a storage and leaves its content open
  Places writes = {};                      // as its schema says
  Places overwrites = {};                  // written whatever was there before
  Places secret_writes = {};               // written, and its schema does not say so
  std::optional<size_t> secretly_if = {};  // ... if this argument is true
  bool may_write = false;                  // its arguments, as declared or not
  bool communicates_in_place = false;      // c10d's own operators: they write their tensors, and no schema says so
  bool tells_number = false;               // copies one to the host, and takes no memory
  std::optional<size_t> target = {};       // of a copy: the argument that says where to
  bool transparent = false;                // calls others only, wherever it runs
  bool opens_window = false;               // waits for a collective: what comes before it runs beside the collective

  // PyTorch derives such an operator's gradient on that kind of device from those of the operators that it calls.
  bool is_composite(c10::Device device) const {
    const int8_t answer = composite_[static_cast<size_t>(device.type())].load(std::memory_order_relaxed);
    return answer == 0 ? find_composite(device) : answer > 0;
  }

  // Whether such a call only copies to the host, and takes no memory of the device, or none but to gather there.
  enum class Telling : uint8_t { kNo, kPlainly, kGathered };
  Telling tells_host(c10::ArrayRef<c10::IValue> inputs) const;

 private:
  bool find_composite(c10::Device device) const;

  mutable std::array<std::atomic<int8_t>, c10::COMPILE_TIME_MAX_DEVICE_TYPES> composite_{};  // 0: not asked yet
};

// The operator of that frame or handle; null where it is none, or one that neither makes nor writes data.
const Recipe* find_recipe(const at::RecordFunction& frame);
const Recipe* find_recipe(const c10::OperatorHandle& op);

// The same of an operator that is known by name.
const Recipe* make_recipe(const OperatorInfo& info);

// Whether the call is recorded as what it calls: composite operators, such as autocast casts for, tensor subclasses
// (DTensor), and tensors that transforms wrap.
bool is_transparent(const Recipe& recipe, c10::ArrayRef<c10::IValue> inputs, c10::Device device);

// Tensors that stand for others: DTensor and other subclasses, what functorch's transforms wrap, fake tensors.
inline bool stands_for_another(const at::Tensor& tensor) {
  constexpr c10::DispatchKeySet kWrapped({c10::DispatchKey::Python, c10::DispatchKey::FuncTorchGradWrapper,
                                          c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::Functionalize});
  return tensor.unsafeGetTensorImpl()->key_set().has_any(kWrapped);
}

// Whether a tensor among them is a subclass's, which Python takes apart.
bool has_subclass(c10::ArrayRef<c10::IValue> inputs);

// Whether no call of it is ever recorded, whatever it is given: a view, a query, or what only calls others.
bool is_never_recorded(const c10::OperatorHandle& op);

// Operators that write arguments in spite of their schema: told by runtime/device/undeclared_writes.py, before the
// first recording. By name without overload: arguments, and the argument that must be true.
struct SecretWrite {
  std::vector<std::string> arguments;
  std::optional<std::string> condition;
};
void set_secret_writes(const std::string& name, SecretWrite write);

}  // namespace bayplan::recompute

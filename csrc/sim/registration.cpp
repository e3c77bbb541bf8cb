#include "sim/registration.h"

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/CPUAllocator.h>
#include <torch/library.h>

#include <string>
#include <unordered_set>

#include "sim/alias.h"
#include "sim/autocast.h"
#include "sim/autograd.h"
#include "sim/device_memory.h"
#include "sim/fallback.h"
#include "sim/generator.h"
#include "sim/guard.h"
#include "sim/machine.h"
#include "sim/ops.h"
#include "sim/pinned.h"
#include "sim/recurrent.h"
#include "sim/sparse.h"

namespace sim {
namespace {

class Hooks final : public at::PrivateUse1HooksInterface {
 public:
  void init() const override {}
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex device) const override { return device < deviceCount(); }
  c10::DeviceIndex deviceCount() const override { return static_cast<c10::DeviceIndex>(device_count()); }
  void setCurrentDevice(c10::DeviceIndex device) const override { exchange_device(device_at(device)); }
  c10::DeviceIndex getCurrentDevice() const override { return static_cast<c10::DeviceIndex>(current_device()); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    const c10::DeviceIndex before = getCurrentDevice();
    setCurrentDevice(device);
    return before;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override { return exchangeDevice(device); }
  at::Allocator* getPinnedMemoryAllocator() const override { return &PinnedAllocator::get(); }
  bool isPinnedPtr(const void* address) const override { return PinnedAllocator::get().owns(address); }
  at::Device getDeviceFromPtr(void* address) const override {
    const DeviceMemory* memory = DeviceMemory::of(address);
    return memory ? memory->device() : at::Device(at::kCPU);
  }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex device) const override {
    return default_generator(device_at(device));
  }
  at::Generator getNewGenerator(c10::DeviceIndex device) const override { return new_generator(device_at(device)); }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    resize_storage(storage, bytes);
  }
};

// Operators without a CPU kernel of their own, whose general implementation picks one by the device's type.
const std::unordered_set<std::string>& composites() {
  static const auto* names = new std::unordered_set<std::string>{"aten::convolution",
                                                                 "aten::_convolution",
                                                                 "aten::convolution_backward",
                                                                 "aten::convolution_overrideable",
                                                                 "aten::convolution_backward_overrideable",
                                                                 "aten::mode"};
  return *names;
}

bool runs_on_cpu(const c10::OperatorHandle& op) {
  if (op.hasKernelForDispatchKey(c10::DispatchKey::PrivateUse1)) return false;
  return op.hasKernelForDispatchKey(c10::DispatchKey::CPU) || composites().count(op.operator_name().name) > 0;
}

bool runs_on_sparse_cpu(const c10::OperatorHandle& op) {
  if (op.hasKernelForDispatchKey(c10::DispatchKey::SparsePrivateUse1)) return false;
  return op.hasKernelForDispatchKey(c10::DispatchKey::SparseCPU);
}

// An explicit registration wins over the general (CompositeExplicit) kernels, so that the sequence of operators is the
// CPU's.
size_t register_fallbacks(torch::Library& device, torch::Library& sparse) {
  size_t count = 0;
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    if (name.getNamespace() != std::optional<std::string_view>("aten")) continue;
    auto op = dispatcher.findSchema(name);
    if (!op) continue;
    std::string local = name.name.substr(sizeof("aten::") - 1);
    if (!name.overload_name.empty()) local += "." + name.overload_name;
    if (runs_on_sparse_cpu(*op)) sparse.impl(local.c_str(), fallback_for(*op, c10::DispatchKey::SparseCPU));
    if (!runs_on_cpu(*op)) continue;
    device.impl(local.c_str(), fallback_for(*op, c10::DispatchKey::CPU));
    ++count;
  }
  return count;
}

torch::Library& library(const char* space, c10::DispatchKey key) {
  return *new torch::Library(torch::Library::IMPL, space, key, __FILE__, __LINE__);
}

}  // namespace

void set_devices(size_t count) {
  DeviceMemory::make(count);
  Machine::get().set_devices(count);
  set_device_count(count);
  for (size_t device = 0; device < count; ++device) default_generator(device);
  serve_devices(count);
}

size_t register_device(std::vector<UndeclaredWrite> undeclared) {
  set_undeclared_writes(std::move(undeclared));
  DeviceMemory::make(1);
  register_guard();
  at::RegisterPrivateUse1HooksInterface(new Hooks());
  c10::SetAllocator(kSim, DeviceMemory::front());
  at::setHostAllocator(kSim, &PinnedAllocator::get());
  c10::SetCPUAllocator(InKernel::allocator(), 1);
  torch::Library& device = library("aten", c10::DispatchKey::PrivateUse1);
  torch::Library& autograd = library("aten", c10::DispatchKey::AutogradPrivateUse1);
  register_ops(device, autograd);
  register_recurrent(device, autograd);
  torch::Library& sparse = library("aten", c10::DispatchKey::SparsePrivateUse1);
  register_sparse(sparse);
  const size_t count = register_fallbacks(device, sparse);
  library("_", c10::DispatchKey::PrivateUse1).fallback(fallback_for_any());
  library("_", c10::DispatchKey::AutocastPrivateUse1).fallback(torch::CppFunction::makeFallthrough());
  register_autocast(library("aten", c10::DispatchKey::AutocastPrivateUse1));
  // Resolving a lazy conjugate or negative copies it; resolving it before that copy would never end.
  for (auto lazy : {c10::DispatchKey::Conjugate, c10::DispatchKey::Negative})
    library("aten", lazy).impl("_copy_from", torch::CppFunction::makeFallthrough());
  serve_devices(1);
  return count;
}

}  // namespace sim

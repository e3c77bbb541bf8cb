#include "sim/host_work.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>

#include <atomic>
#include <memory>
#include <unordered_map>
#include <unordered_set>

#include "sim/kernel_call.h"
#include "sim/op_info.h"
#include "sim/pinned.h"

namespace sim {
namespace {

void touch_all(KernelCall& call, const std::vector<at::Tensor>& tensors, uint8_t use) {
  for (const at::Tensor& tensor : tensors) {
    TORCH_CHECK(tensor.is_cpu(), "the host does not read or write tensors of ", tensor.device(),
                ": name the page-locked tensor that it is copied to");
    call.touch(tensor, use);
  }
}

// What an operator does with its arguments' bytes where all of them are the host's.
struct HostOp {
  explicit HostOp(const c10::OperatorHandle& op) : info(op) {
    static const std::unordered_set<std::string> kBare = {"set_", "resize_", "resize_as_"};
    // Operators without a kernel of the CPU's call others, which are seen by themselves; copy_ does the work itself.
    touches = !info.view && kBare.count(info.name) == 0 &&
              (op.hasKernelForDispatchKey(c10::DispatchKey::CPU) || std::string(info.name) == "copy_");
  }
  OpInfo info;
  bool touches;
};

const HostOp* find_op(const at::RecordFunction& frame) {
  static std::mutex guard;
  static auto* known = new std::unordered_map<c10::OperatorName, std::unique_ptr<HostOp>>();
  const auto name = frame.operator_name();
  if (!name) return nullptr;
  std::lock_guard<std::mutex> held(guard);
  auto& found = (*known)[*name];
  if (!found) {
    const auto op = c10::Dispatcher::singleton().findSchema(*name);
    if (!op) return nullptr;
    found = std::make_unique<HostOp>(*op);
  }
  return found.get();
}

template <typename Visit>
void for_each_tensor(const c10::IValue& value, const Visit& visit) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) visit(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorList()) visit(tensor);
  } else if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) for_each_tensor(element, visit);
  }
}

std::atomic<int> watching{0};  // By whom it was asked for on all threads.
thread_local std::optional<int> tls_working;

struct Touched {
  at::Tensor tensor;
  uint8_t use;
};

// The page-locked tensors of a call, none if it has tensors of a device: then the device does it.
std::vector<Touched> pinned_arguments(const OpInfo& info, c10::ArrayRef<const c10::IValue> arguments) {
  std::vector<Touched> found;
  bool on_host = true;
  for (size_t i = 0; i < arguments.size() && i < info.uses.size(); ++i)
    for_each_tensor(arguments[i], [&](const at::Tensor& tensor) {
      on_host = on_host && tensor.is_cpu() && tensor.layout() == c10::kStrided;
      if (!on_host || !tensor.has_storage()) return;
      const void* data = tensor.storage().unsafeGetStorageImpl()->_mutable_data_ptr_no_checks().get();
      if (PinnedAllocator::get().owns(data)) found.push_back({tensor, info.uses[i]});
    });
  if (!on_host) found.clear();
  return found;
}

std::unique_ptr<at::ObserverContext> on_operator(const at::RecordFunction& frame) {
  if (!tls_working && watching == 0) return nullptr;
  if (!Machine::get().races.on()) return nullptr;
  const HostOp* op = find_op(frame);
  if (!op || !op->touches) return nullptr;
  const std::vector<Touched> touched = pinned_arguments(op->info, frame.inputs());
  if (touched.empty()) return nullptr;
  const size_t device = tls_working ? static_cast<size_t>(*tls_working) : current_device();
  const OnDevice on(device);
  KernelCall call(op->info.name, Machine::get().stream_of(tls_working ? Doer::kWorker : Doer::kHost, device));
  for (const Touched& one : touched) call.touch(one.tensor, one.use);
  return nullptr;
}

// One observer, there while anybody wants it.
void observe(int change) {
  static std::mutex guard;
  static int wanted = 0;
  static at::CallbackHandle handle = 0;
  std::lock_guard<std::mutex> held(guard);
  const int before = wanted;
  wanted += change;
  if (before == 0 && wanted > 0)
    handle = at::addGlobalCallback(
        at::RecordFunctionCallback(on_operator).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
  if (before > 0 && wanted == 0) at::removeCallback(handle);
}

}  // namespace

void access_on_host(size_t device, const std::vector<at::Tensor>& reads, const std::vector<at::Tensor>& writes,
                    const char* name) {
  const OnDevice on(device);
  KernelCall call(name, Machine::get().stream_of(Doer::kHost, device));
  touch_all(call, reads, kRead);
  touch_all(call, writes, kWrite);
  call.check();
}

void start_host_task(size_t device, Nanoseconds duration, const std::vector<at::Tensor>& reads,
                     const std::vector<at::Tensor>& writes, const char* name) {
  const OnDevice on(device);
  Machine& machine = Machine::get();
  const size_t worker = machine.stream_of(Doer::kWorker, device);
  machine.await_comms(worker);
  KernelCall call(name, worker);
  machine.run_host_task(worker, name, duration);
  touch_all(call, reads, kRead);
  touch_all(call, writes, kWrite);
  call.check();
}

void watch_host(bool on) {
  watching += on ? 1 : -1;
  observe(on ? 1 : -1);
}

std::optional<int> exchange_working(std::optional<int> device) {
  observe((device ? 1 : 0) - (tls_working ? 1 : 0));
  return std::exchange(tls_working, device);
}

}  // namespace sim

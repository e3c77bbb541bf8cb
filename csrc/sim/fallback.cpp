#include "sim/fallback.h"

#include <ATen/core/stack.h>
#include <ATen/ops/empty_like.h>
#include <ATen/record_function.h>

#include <memory>
#include <unordered_map>

#include "sim/alias.h"
#include "sim/copy_on_write.h"
#include "sim/device_memory.h"
#include "sim/generator.h"
#include "sim/kernel_call.h"
#include "sim/op_info.h"
#include "sim/ops.h"
#include "sim/own_kernels.h"
#include "sim/shapes.h"
#include "sim/sparse.h"
#include "sim/temporaries.h"

namespace sim {
namespace {

using Stack = torch::jit::Stack;

template <typename F>
void for_each_tensor(const c10::IValue& value, F&& visit) {
  if (value.isTensor()) {
    for_each_part(value.toTensor(), visit);
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorList()) for_each_part(tensor, visit);
  } else if (value.isOptionalTensorList()) {
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorList())
      if (tensor) for_each_part(*tensor, visit);
  }
}

template <typename F>
void replace_tensors(c10::IValue& value, F&& replaced) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) value = replaced(value.toTensor());
  } else if (value.isTensorList()) {
    auto list = value.toTensorVector();
    for (at::Tensor& tensor : list) tensor = replaced(tensor);
    value = c10::IValue(std::move(list));
  } else if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector())
      list.push_back(tensor && tensor->defined() ? std::optional<at::Tensor>(replaced(*tensor)) : tensor);
    value = c10::IValue(std::move(list));
  }
}

// One call of one operator.
class Call {
 public:
  Call(const OpInfo& info, const c10::OperatorHandle& op, c10::DispatchKey key, Stack* stack)
      : info_(info), op_(op), key_(key), stack_(stack), arguments_(op.schema().arguments().size()) {}

  void run() {
    const OnDevice on(device());
    count();
    if (has_host_indices_) move_indices();
    if (info_.view) {
      alias();
      run_on_cpu();
      leave();
      return;
    }
    if (shapes_) require_shape(info_, key_, arguments());
    own_written();
    KernelCall kernel(info_.name, Machine::current_stream());
    enter(kernel);
    kernel.check();
    std::vector<c10::IValue> before;
    const bool measures = !shapes_ && Temporaries::get().measuring();
    if (shapes_ || measures) shape_ = Temporaries::shape_of(info_, arguments());
    const bool tries = shapes_ && has_own_blocks(shape_);
    if (info_.flops || tries) before.assign(stack_->end() - static_cast<ptrdiff_t>(arguments_), stack_->end());
    alias();
    {
      Watch watch(measures);
      shapes_ ? run_shape_function(info_, op_, *stack_) : run_on_cpu();
      leave();
      if (shapes_ || measures) Temporaries::add_results(shape_, results());
      if (measures) Temporaries::get().note(std::move(shape_), watch.excess());
    }
    finish(kernel, before);
  }

 private:
  c10::ArrayRef<c10::IValue> arguments() const {
    return c10::ArrayRef<c10::IValue>(stack_->data() + (stack_->size() - arguments_), arguments_);
  }
  c10::IValue& argument(size_t i) { return (*stack_)[stack_->size() - arguments_ + i]; }

  uint8_t use(size_t i) { return info_.uses[i] | (info_.writes_undeclared(i, arguments()) ? kWrite : 0); }

  static void count() {
    Machine& machine = Machine::get();
    std::lock_guard<std::recursive_mutex> held(machine.lock);
    ++machine.counters().fallbacks;
  }

  // The device of the tensors; where there are none, the one that the program names, else the current one. A device
  // kernel gets 0-dimensional host tensors by value; any other operand elsewhere it cannot reach.
  size_t device() {
    std::optional<c10::Device> here, foreign, named;
    for (size_t i = 0; i < arguments_; ++i) {
      if (argument(i).isDevice() && argument(i).toDevice().type() == kSim) named = argument(i).toDevice();
      for_each_tensor(argument(i), [&](const at::Tensor& tensor) {
        if (!tensor.defined()) return;
        if (tensor.device().type() == kSim) {
          if (here && *here != tensor.device()) refuse(*here, tensor.device());
          here = tensor.device();
        } else if (tensor.dim() != 0 || (info_.uses[i] & kWrite)) {
          foreign = tensor.device();
        }
      });
    }
    if (!here) return device_at(named ? named->index() : -1);
    if (foreign && !info_.takes_host_indices) refuse(*here, *foreign);
    has_host_indices_ = foreign.has_value();
    return static_cast<size_t>(here->index());
  }

  [[noreturn]] void refuse(c10::Device here, c10::Device there) {
    const auto all = device_count() == 1 ? std::string("sim") : here.str();
    TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, ", here, " and ",
                there, there.type() == kSim ? "! (" : ", ", "in the operator ", info_.name,
                there.type() == kSim ? ")" : "", ": move them with .to('", all, "')");
  }

  // Indexing accepts indices on the host, as on CUDA, and copies them to the device first.
  void move_indices() {
    for (size_t i = 0; i < arguments_; ++i) {
      if (!argument(i).isOptionalTensorList()) continue;
      replace_tensors(argument(i), [](const at::Tensor& index) { return on_sim(index) ? index : to_sim(index); });
    }
    for (size_t i = 0; i < arguments_; ++i)
      for_each_tensor(argument(i), [&](const at::Tensor& tensor) {
        if (tensor.defined() && !on_sim(tensor) && tensor.dim() != 0) refuse(sim_device(), tensor.device());
      });
  }

  // What the operator writes shares its bytes with no other storage.
  void own_written() {
    for (size_t i = 0; i < arguments_; ++i) {
      if (!(use(i) & kWrite)) continue;
      for_each_tensor(argument(i), [](const at::Tensor& tensor) {
        if (on_sim(tensor)) own_bytes(tensor);
      });
    }
  }

  void enter(KernelCall& kernel) {
    for (size_t i = 0; i < arguments_; ++i) {
      const uint8_t used = use(i);
      for_each_tensor(argument(i), [&](const at::Tensor& tensor) {
        if (on_sim(tensor)) kernel.touch(tensor, used);
      });
    }
  }

  void alias() {
    for (size_t i = 0; i < arguments_; ++i) {
      c10::IValue& value = argument(i);
      if (value.isDevice()) {
        if (value.toDevice().type() != kSim) continue;
        check_index(value.toDevice().index());
        value = c10::Device(shapes_ && !info_.view ? c10::kMeta : c10::kCPU);
      } else if (value.isGenerator()) {
        value = cpu_generator(value.toGenerator());
      } else if (i == info_.generator && draws_itself()) {
        value = cpu_generator(default_generator(current_device()));
      } else {
        const uint8_t used = use(i);
        replace_tensors(value, [&](const at::Tensor& tensor) { return aliases_.enter(tensor, used, !info_.view); });
      }
    }
  }

  void run_on_cpu() {
    InKernel in_kernel;
    at::DisableRecordFunctionGuard silent;  // The kernel's own calls are no operators of the program.
    if (info_.drops_out && draws_itself() && drops_out())
      run_native_dropout(*stack_, cpu_generator(default_generator(current_device())));
    else
      op_.redispatchBoxed(c10::DispatchKeySet(key_), stack_);
  }

  // Whether random numbers are not those of the CPU's default generator, which its kernels take by themselves.
  bool draws_itself() const { return !shapes_ && current_device() > 0; }
  bool drops_out() { return argument(0).toTensor().numel() > 0 && (argument(2).isNone() || argument(2).toBool()); }

  void leave() {
    if (op_.schema().is_mutable() || aliases_.any_shared()) aliases_.write_back();
    for (size_t i = stack_->size() - results().size(); i < stack_->size(); ++i)
      replace_tensors((*stack_)[i], [&](const at::Tensor& tensor) { return aliases_.leave(tensor); });
  }

  c10::ArrayRef<c10::IValue> results() const {
    const size_t count = op_.schema().returns().size();
    return c10::ArrayRef<c10::IValue>(stack_->data() + (stack_->size() - count), count);
  }

  void finish(KernelCall& kernel, const std::vector<c10::IValue>& before) {
    int64_t written = 0;
    c10::ScalarType dtype = c10::ScalarType::Undefined;
    for (const c10::IValue& value : results())
      for_each_tensor(value, [&](const at::Tensor& tensor) {
        if (!on_sim(tensor) || aliases_.holds(tensor)) return;
        kernel.touch(tensor, kWrite);
        written += bytes_of(tensor);
      });
    int64_t bytes = written;
    bool first = true;
    for (const Aliases::Operand& operand : aliases_.operands()) {
      const int64_t size = bytes_of(operand.sim);
      if (operand.use & kRead) bytes += info_.gathers && first ? std::min(size, written) : size;
      if (operand.use & kWrite) bytes += size;
      if (dtype == c10::ScalarType::Undefined) dtype = operand.sim.scalar_type();
      first = false;
    }
    if (shapes_) take_temporaries(before);
    const int64_t flops = info_.flops ? info_.flops(before, results()) : 0;
    kernel.finish(info_.op_class, dtype, flops, bytes);
    if (info_.waits) Machine::get().host_wait(Machine::get().tail(kernel.stream()));
  }

  // They live beside the results, as long as the kernel is under way.
  void take_temporaries(const std::vector<c10::IValue>& before) {
    const std::optional<size_t> tried =
        has_own_blocks(shape_) ? tried_bytes(info_, op_, shape_, before, results()) : std::nullopt;
    const size_t bytes = tried ? *tried : Temporaries::get().bytes(shape_);
    if (bytes > 0) const c10::DataPtr taken = DeviceMemory::get().allocate(bytes);
  }

  const OpInfo& info_;
  const c10::OperatorHandle& op_;
  c10::DispatchKey key_;  // Of the CPU's kernel: dense, or sparse.
  Stack* stack_;
  size_t arguments_;
  Aliases aliases_;
  const bool shapes_ = shapes_only();
  bool has_host_indices_ = false;
  CallShape shape_;  // Where temporaries are looked up or measured.
};

class OpKernel final : public c10::OperatorKernel {
 public:
  OpKernel(const c10::OperatorHandle& op, c10::DispatchKey key) : info_(op), key_(key) {}
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, Stack* stack) {
    Call(info_, op, key_, stack).run();
  }

 private:
  OpInfo info_;
  c10::DispatchKey key_;
};

class AnyKernel final : public c10::OperatorKernel {
 public:
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet /*keys*/, Stack* stack) {
    Call(info(op), op, c10::DispatchKey::CPU, stack).run();
  }

 private:
  const OpInfo& info(const c10::OperatorHandle& op) {
    std::lock_guard<std::mutex> held(guard_);
    auto& known = infos_[op.operator_name()];
    if (!known) known = std::make_unique<OpInfo>(op);
    return *known;
  }

  std::mutex guard_;
  std::unordered_map<c10::OperatorName, std::unique_ptr<OpInfo>> infos_;
};

}  // namespace

torch::CppFunction fallback_for(const c10::OperatorHandle& op, c10::DispatchKey cpu) {
  return torch::CppFunction::makeFromBoxedFunctor(std::make_unique<OpKernel>(op, cpu));
}

torch::CppFunction fallback_for_any() {
  return torch::CppFunction::makeFromBoxedFunctor(std::make_unique<AnyKernel>());
}

}  // namespace sim

#include "sim/generator.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>

#include <array>
#include <mutex>

#include "sim/devices.h"

namespace sim {
namespace {

class SimGenerator final : public c10::GeneratorImpl {
 public:
  SimGenerator(size_t device, at::Generator cpu)
      : c10::GeneratorImpl(sim_device(device), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
        cpu_(std::move(cpu)) {}

  void set_current_seed(uint64_t seed) override { cpu_.set_current_seed(seed); }
  void set_offset(uint64_t offset) override { cpu_.set_offset(offset); }
  uint64_t get_offset() const override { return cpu_.get_offset(); }
  uint64_t current_seed() const override { return cpu_.current_seed(); }
  uint64_t seed() override { return impl().seed(); }
  void set_state(const c10::TensorImpl& state) override { impl().set_state(state); }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override { return impl().get_state(); }
  // A generator that shares the numbers: whoever keeps states need not take them as tensors.
  c10::intrusive_ptr<c10::GeneratorImpl> graphsafe_get_state() const override { return cpu_.getIntrusivePtr(); }
  const at::Generator& cpu() const { return cpu_; }

 private:
  c10::GeneratorImpl& impl() const { return *cpu_.unsafeGetGeneratorImpl(); }
  SimGenerator* clone_impl() const override {
    return new SimGenerator(static_cast<size_t>(device().index()), cpu_.clone());
  }

  at::Generator cpu_;
};

}  // namespace

const at::Generator& default_generator(size_t device) {
  static std::mutex guard;
  static auto* generators = new std::array<at::Generator, kMostDevices>();
  const std::lock_guard<std::mutex> held(guard);
  at::Generator& own = (*generators)[device];
  if (!own.defined()) {
    const at::Generator& first = at::detail::getDefaultCPUGenerator();
    own = at::make_generator<SimGenerator>(device,
                                           device == 0 ? first : at::detail::createCPUGenerator(first.current_seed()));
  }
  return own;
}

at::Generator new_generator(size_t device) {
  return at::make_generator<SimGenerator>(device, at::detail::createCPUGenerator());
}

at::Generator cpu_generator(const at::Generator& generator) {
  TORCH_CHECK(generator.device().type() == kSim, "Expected a 'sim' device type for generator but found '",
              generator.device().type(), "'");
  return static_cast<SimGenerator*>(generator.unsafeGetGeneratorImpl())->cpu();
}

void run_native_dropout(torch::jit::Stack& stack, const at::Generator& cpu) {
  const double keep = 1. - torch::jit::peek(stack, 1, 3).toDouble();
  const at::Tensor input = torch::jit::peek(stack, 0, 3).toTensor();
  at::Tensor mask = at::empty_like(input, input.options().dtype(at::kBool));
  mask.bernoulli_(keep, cpu);
  at::Tensor output = input.mul(mask).mul_(keep == 0 ? 0. : 1. / keep);
  torch::jit::drop(stack, 3);
  torch::jit::push(stack, std::move(output), std::move(mask));
}

}  // namespace sim

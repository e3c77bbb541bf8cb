#include "sim/generator.h"

#include <ATen/CPUGeneratorImpl.h>

#include "sim/machine.h"

namespace sim {
namespace {

class SimGenerator final : public c10::GeneratorImpl {
 public:
  explicit SimGenerator(at::Generator cpu)
      : c10::GeneratorImpl(sim_device(), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)), cpu_(std::move(cpu)) {}

  void set_current_seed(uint64_t seed) override { cpu_.set_current_seed(seed); }
  void set_offset(uint64_t offset) override { cpu_.set_offset(offset); }
  uint64_t get_offset() const override { return cpu_.get_offset(); }
  uint64_t current_seed() const override { return cpu_.current_seed(); }
  uint64_t seed() override { return impl().seed(); }
  void set_state(const c10::TensorImpl& state) override { impl().set_state(state); }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override { return impl().get_state(); }
  const at::Generator& cpu() const { return cpu_; }

 private:
  c10::GeneratorImpl& impl() const { return *cpu_.unsafeGetGeneratorImpl(); }
  SimGenerator* clone_impl() const override { return new SimGenerator(cpu_.clone()); }

  at::Generator cpu_;
};

}  // namespace

const at::Generator& default_generator() {
  static const auto* generator =
      new at::Generator(at::make_generator<SimGenerator>(at::detail::getDefaultCPUGenerator()));
  return *generator;
}

at::Generator new_generator() { return at::make_generator<SimGenerator>(at::detail::createCPUGenerator()); }

at::Generator cpu_generator(const at::Generator& generator) {
  TORCH_CHECK(generator.device().type() == kSim, "Expected a 'sim' device type for generator but found '",
              generator.device().type(), "'");
  return static_cast<SimGenerator*>(generator.unsafeGetGeneratorImpl())->cpu();
}

}  // namespace sim

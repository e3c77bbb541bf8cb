#include "follow/random.h"

#include <atomic>
#include <mutex>

namespace bayplan {
namespace {

// The generator that the numbers are drawn from: a simulated device's hands out the CPU's that it stands on.
c10::intrusive_ptr<c10::GeneratorImpl> source_of(const at::Generator& generator) {
  static std::atomic<bool> hands_out{true};
  if (generator.device().type() == c10::DeviceType::PrivateUse1 && hands_out.load(std::memory_order_relaxed)) {
    try {
      return generator.unsafeGetGeneratorImpl()->graphsafe_get_state();
    } catch (const c10::Error&) {  // another backend's, which has no such thing
      hands_out.store(false, std::memory_order_relaxed);
    }
  }
  return generator.getIntrusivePtr();
}

// It, while nobody else draws from it.
class OnCpu {
 public:
  explicit OnCpu(const at::Generator& generator)
      : source_(source_of(generator)),
        cpu_(source_->device().is_cpu() ? dynamic_cast<at::CPUGeneratorImpl*>(source_.get()) : nullptr) {
    if (cpu_ != nullptr) lock_ = std::unique_lock<std::mutex>(cpu_->mutex_);
  }
  at::CPUGeneratorImpl* get() const { return cpu_; }

 private:
  c10::intrusive_ptr<c10::GeneratorImpl> source_;
  at::CPUGeneratorImpl* cpu_;
  std::unique_lock<std::mutex> lock_;
};

}  // namespace

RandomState::RandomState(const at::Generator& generator) {
  const OnCpu cpu(generator);
  if (cpu.get() != nullptr) {
    engine_.emplace(cpu.get()->engine());
    next_float_ = cpu.get()->next_float_normal_sample();
    next_double_ = cpu.get()->next_double_normal_sample();
    return;
  }
  const std::lock_guard<std::mutex> lock(generator.unsafeGetGeneratorImpl()->mutex_);
  other_ = generator.get_state();
}

void RandomState::give_back(const at::Generator& generator) const {
  const OnCpu cpu(generator);
  if (cpu.get() != nullptr && engine_.has_value()) {
    cpu.get()->set_engine(*engine_);
    cpu.get()->set_next_float_normal_sample(next_float_);
    cpu.get()->set_next_double_normal_sample(next_double_);
    return;
  }
  const std::lock_guard<std::mutex> lock(generator.unsafeGetGeneratorImpl()->mutex_);
  at::Generator(generator).set_state(other_);
}

}  // namespace bayplan

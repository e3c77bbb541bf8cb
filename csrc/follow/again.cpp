#include "follow/again.h"

#include <ATen/Context.h>
#include <ATen/SavedTensorHooks.h>
#include <ATen/core/List.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/stack.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <unordered_set>
#include <vector>

#include "follow/follower.h"
#include "follow/frames.h"
#include "follow/random.h"

namespace bayplan::swap {
namespace {

constexpr unsigned kMostRuns = 8;  // of one operator: each has told of one more request, or waited for others
constexpr c10::DispatchKeySet kBelow(c10::DispatchKeySet::FULL_AFTER, kAgain);
// Whoever takes an operator apart may do something of his own in it.
constexpr c10::DispatchKeySet kTakenApart(
    {c10::DispatchKey::Python, c10::DispatchKey::PythonTLSSnapshot, c10::DispatchKey::Functionalize,
     c10::DispatchKey::FuncTorchDynamicLayerFrontMode, c10::DispatchKey::FuncTorchDynamicLayerBackMode,
     c10::DispatchKey::FuncTorchGradWrapper, c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::FuncTorchVmapMode,
     c10::DispatchKey::Batched, c10::DispatchKey::VmapMode, c10::DispatchKey::Tracer});

std::mutex naming;
std::unordered_set<std::string>& secret_writers() {
  static auto* names = new std::unordered_set<std::string>();
  return *names;
}

bool hooks_are_told() {
  return at::GradMode::is_enabled() && at::SavedTensorDefaultHooks::is_enabled() &&
         !at::SavedTensorDefaultHooks::get_tls_state().stack.empty();
}

// The only device, of those that are followed, on which the calling thread is in an operator.
std::optional<c10::Device> device_of_operator() {
  std::optional<c10::Device> found;
  for (const OpenFrames* own : OpenFrames::all_of_thread()) {
    if (own->outermost() == nullptr) continue;
    if (found.has_value()) return std::nullopt;
    found = own->device();
  }
  return found;
}

// What an operator is called with, and the random numbers that it draws: as they were.
class Call {
 public:
  Call(const c10::OperatorHandle& op, const torch::jit::Stack& stack, c10::Device device)
      : begin_(stack.size() - op.schema().arguments().size()),
        arguments_(stack.begin() + static_cast<std::ptrdiff_t>(begin_), stack.end()) {
    if (!op.hasTag(at::Tag::nondeterministic_seeded)) return;
    for (const c10::IValue& value : arguments_) {
      if (value.isGenerator()) generator_ = value.toGenerator();
    }
    if (!generator_.has_value()) generator_ = at::globalContext().defaultGenerator(device);
    before_.emplace(*generator_);
  }

  void restore(torch::jit::Stack& stack) const {
    stack.resize(begin_);
    stack.insert(stack.end(), arguments_.begin(), arguments_.end());
    if (before_.has_value()) before_->give_back(*generator_);
  }

 private:
  const size_t begin_;
  const torch::jit::Stack arguments_;
  std::optional<at::Generator> generator_;
  std::optional<RandomState> before_;
};

bool make_place(c10::Device device, const c10::OperatorHandle& op) {
  Follower* follower = Follower::active(device);
  if (follower == nullptr || !is_repeatable(op) || hooks_are_told()) return false;
  bool made = false;
  guarded(follower, [&] { made = follower->make_place_again(op.operator_name()); });
  return made;
}

void on_call(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const c10::DispatchKeySet below = keys & kBelow;
  const std::optional<c10::Device> device = device_of_operator();
  if (!device.has_value()) return op.redispatchBoxed(below, stack);  // what it calls may be an operator that counts
  const c10::impl::ExcludeDispatchKeyGuard what_it_calls(kAgain);
  if (keys.has_any(kTakenApart) || op.schema().is_mutable()) return op.redispatchBoxed(below, stack);
  const Call call(op, *stack, *device);
  for (unsigned run = 1;; ++run) {
    try {
      return op.redispatchBoxed(below, stack);
    } catch (const c10::OutOfMemoryError&) {
      if (run == kMostRuns || !make_place(*device, op)) throw;
    }
    call.restore(*stack);
  }
}

// Once a process, before the first thread asks.
void enter_dispatcher() {
  static auto* entered = new std::vector<c10::RegistrationHandleRAII>();  // until exit: other threads may still run
  static std::once_flag once;
  std::call_once(once, [] {
    entered->push_back(c10::Dispatcher::singleton().registerFallback(
        kAgain, c10::KernelFunction::makeFromBoxedFunction<&on_call>(), "bayplan: what runs again"));
  });
}

}  // namespace

void run_again(bool on) {
  if (on) enter_dispatcher();
  c10::impl::tls_set_dispatch_key_included(kAgain, on);
}

bool runs_again() { return c10::impl::tls_is_dispatch_key_included(kAgain); }

void set_secret_writer(const std::string& name) {
  const std::lock_guard<std::mutex> lock(naming);
  secret_writers().insert(name);
}

bool is_repeatable(const c10::OperatorHandle& op) {
  const c10::FunctionSchema& schema = op.schema();
  const auto is_tensors = [](const c10::Argument& one) {
    const c10::TypeKind kind = one.type()->kind();
    return kind == c10::TypeKind::TensorType || kind == c10::TypeKind::ListType;
  };
  const bool tensors = std::any_of(schema.returns().begin(), schema.returns().end(), is_tensors);
  if (!tensors || schema.is_mutable() || schema.name().compare(0, 6, "aten::") != 0) return false;
  const std::lock_guard<std::mutex> lock(naming);
  return secret_writers().count(schema.name()) == 0;
}

}  // namespace bayplan::swap

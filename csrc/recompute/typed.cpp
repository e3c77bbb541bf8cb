// The most common operators of models come to the recorder as C++ calls them. A fallback gets its arguments in a list,
// which PyTorch makes for it and takes apart behind it: that costs more than recording (`make bench ARGS="--only
// tape"`, "nothing recorded"). What is recorded, and how, is the same.
#include "recompute/calls.h"

#include <ATen/ops/_adaptive_avg_pool2d_ops.h>
#include <ATen/ops/_fused_rms_norm_ops.h>
#include <ATen/ops/_log_softmax_ops.h>
#include <ATen/ops/_safe_softmax_ops.h>
#include <ATen/ops/_scaled_dot_product_efficient_attention_ops.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_ops.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_ops.h>
#include <ATen/ops/_scaled_dot_product_fused_attention_overrideable_ops.h>
#include <ATen/ops/_softmax_ops.h>
#include <ATen/ops/_to_copy_ops.h>
#include <ATen/ops/add_ops.h>
#include <ATen/ops/addmm_ops.h>
#include <ATen/ops/baddbmm_ops.h>
#include <ATen/ops/bernoulli_ops.h>
#include <ATen/ops/bmm_ops.h>
#include <ATen/ops/cat_ops.h>
#include <ATen/ops/clone_ops.h>
#include <ATen/ops/convolution_ops.h>
#include <ATen/ops/copy_ops.h>
#include <ATen/ops/cos_ops.h>
#include <ATen/ops/div_ops.h>
#include <ATen/ops/embedding_ops.h>
#include <ATen/ops/empty_like_ops.h>
#include <ATen/ops/empty_ops.h>
#include <ATen/ops/exp_ops.h>
#include <ATen/ops/gelu_ops.h>
#include <ATen/ops/linear_ops.h>
#include <ATen/ops/masked_fill_ops.h>
#include <ATen/ops/matmul_ops.h>
#include <ATen/ops/max_pool2d_with_indices_ops.h>
#include <ATen/ops/mean_ops.h>
#include <ATen/ops/mm_ops.h>
#include <ATen/ops/mul_ops.h>
#include <ATen/ops/native_batch_norm_ops.h>
#include <ATen/ops/native_dropout_ops.h>
#include <ATen/ops/native_group_norm_ops.h>
#include <ATen/ops/native_layer_norm_ops.h>
#include <ATen/ops/neg_ops.h>
#include <ATen/ops/pow_ops.h>
#include <ATen/ops/relu_ops.h>
#include <ATen/ops/rsqrt_ops.h>
#include <ATen/ops/rsub_ops.h>
#include <ATen/ops/sigmoid_ops.h>
#include <ATen/ops/silu_ops.h>
#include <ATen/ops/sin_ops.h>
#include <ATen/ops/sub_ops.h>
#include <ATen/ops/sum_ops.h>
#include <ATen/ops/tanh_ops.h>
#include <ATen/ops/where_ops.h>

#include <ATen/core/IListRef.h>

#include <algorithm>
#include <array>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

namespace bayplan::recompute {
namespace {

// Values as the dispatcher's lists have them. Tensors are borrowed: counting them up and down for every operator takes
// as long as some of the recording.
template <typename Type>
c10::IValue as_value(const Type& value) {
  return c10::IValue(value);
}
c10::IValue as_value(const at::Tensor& tensor) {
  return c10::IValue(c10::MaybeOwnedTraits<at::Tensor>::createBorrow(tensor));
}
c10::IValue as_value(const std::optional<at::Tensor>& tensor) {
  return tensor.has_value() ? as_value(*tensor) : c10::IValue();
}

template <typename... Types>
class Borrowed {
 public:
  explicit Borrowed(const Types&... values) : values_{as_value(values)...} {}
  ~Borrowed() {
    for (c10::IValue& value : values_) {
      if (value.isTensor()) c10::MaybeOwnedTraits<c10::IValue>::destroyBorrow(value);
    }
  }
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;
  operator c10::ArrayRef<c10::IValue>() const { return values_; }

 private:
  std::array<c10::IValue, sizeof...(Types)> values_;
};

// Whether an argument is a tensor that stands for another, or has one in it.
template <typename Type>
bool stands_for_others(const Type& /*value*/) {
  return false;
}
bool stands_for_others(const at::Tensor& tensor) { return stands_for_another(tensor); }
bool stands_for_others(const std::optional<at::Tensor>& tensor) {
  return tensor.has_value() && stands_for_another(*tensor);
}
bool stands_for_others(const at::ITensorListRef& tensors) {
  return std::any_of(tensors.begin(), tensors.end(), [](const at::Tensor& one) { return stands_for_another(one); });
}

template <typename Type>
void add_argument(Tape& tape, const Type& value) {
  if constexpr (std::is_same_v<Type, at::Tensor> || std::is_same_v<Type, std::optional<at::Tensor>>) {
    tape.add_argument(value);
  } else {
    tape.add_argument(c10::IValue(value));
  }
}

// What an operator returned.
template <typename Result>
void add_result(Tape& tape, int32_t place, const Result& result) {
  static_assert(!std::is_same_v<Result, std::vector<at::Tensor>>, "lists come by the fallback");
  if constexpr (std::is_same_v<Result, at::Tensor>) {
    if (result.defined()) tape.add_result(place, kNone, result);
  }
}
template <typename Result>
void add_results(Tape& tape, const Result& result) {
  add_result(tape, 0, result);
}
template <typename... Results>
void add_results(Tape& tape, const std::tuple<Results...>& results) {
  int32_t place = 0;
  std::apply([&](const auto&... each) { (add_result(tape, place++, each), ...); }, results);
}

constexpr c10::DispatchKeySet kNotAsItIs = c10::autocast_dispatch_keyset | c10::python_ks;

template <typename Operator, typename Signature = typename Operator::schema>
struct Typed;

template <typename Operator, typename Result, typename... Arguments>
struct Typed<Operator, Result(Arguments...)> {
  static c10::OperatorName name() { return {Operator::name, Operator::overload_name}; }

  static const Recipe* recipe() {
    static const Recipe* const own =
        find_recipe(c10::Dispatcher::singleton().findSchemaOrThrow(Operator::name, Operator::overload_name));
    TORCH_INTERNAL_ASSERT(own != nullptr, Operator::name, " makes nothing: it is not the recorder's");
    return own;
  }

  static Result call(c10::DispatchKeySet keys, Arguments... arguments) {
    const auto run = [&]() -> Result { return Operator::redispatch(keys & kBelow, arguments...); };
    Recording& own = recording();
    if (!own.listens()) {
      const c10::impl::ExcludeDispatchKeyGuard what_it_calls(kRecording);
      return run();
    }
    const bool apart = keys.has_any(kNotAsItIs) || (stands_for_others(arguments) || ...);
    if (apart) return call_apart(own, keys, arguments...);
    if (recipe()->is_composite(own.tape->device())) return run();
    return record(own, run, [&](Tape& tape) { (add_argument(tape, arguments), ...); });
  }

  // Autocast casts for it, or tensors among its arguments stand for others.
  static Result call_apart(Recording& own, c10::DispatchKeySet keys, Arguments... arguments) {
    const auto run = [&]() -> Result { return Operator::redispatch(keys & kBelow, arguments...); };
    const bool subclasses = keys.has(c10::DispatchKey::Python);
    if (!subclasses && recipe()->is_composite(own.tape->device())) return run();
    const Borrowed<std::decay_t<Arguments>...> inputs(arguments...);
    if (is_transparent(*recipe(), inputs, own.tape->device())) {
      const TakenApart apart(own, inputs);
      return run();
    }
    return record(own, run, each_argument(inputs));
  }

  template <typename Run, typename AddArguments>
  static Result record(Recording& own, const Run& run, const AddArguments& add_arguments) {
    Recorded recorded(own, *recipe(), add_arguments);
    Result result = recorded.call(run);
    recorded.end([&](Tape& tape) { add_results(tape, result); });
    return result;
  }

  static c10::KernelFunction kernel() { return c10::KernelFunction::makeFromUnboxedFunction(TORCH_FN(&Typed::call)); }
};

template <typename... Operators>
void enter(std::vector<c10::RegistrationHandleRAII>& entered) {
  auto& dispatcher = c10::Dispatcher::singleton();
  const auto enter_one = [&](const c10::OperatorName& name, c10::KernelFunction kernel) {
    const auto op = dispatcher.findSchema(name);
    if (!op.has_value() || is_never_recorded(*op)) return;
    entered.push_back(dispatcher.registerImpl(name, kRecording, std::move(kernel), std::nullopt, nullptr,
                                              "bayplan: the recorder of tapes"));
  };
  (enter_one(Typed<Operators>::name(), Typed<Operators>::kernel()), ...);
}

}  // namespace

void enter_typed(std::vector<c10::RegistrationHandleRAII>& entered) {
  namespace op = at::_ops;
  enter<op::linear, op::matmul, op::addmm, op::mm, op::bmm, op::baddbmm, op::convolution, op::embedding>(entered);
  enter<op::native_layer_norm, op::native_group_norm, op::native_batch_norm, op::_fused_rms_norm>(entered);
  enter<op::_scaled_dot_product_flash_attention_for_cpu, op::_scaled_dot_product_flash_attention,
        op::_scaled_dot_product_efficient_attention, op::_scaled_dot_product_fused_attention_overrideable>(entered);
  enter<op::_softmax, op::_safe_softmax, op::_log_softmax, op::relu, op::gelu, op::silu, op::sigmoid, op::tanh>(
      entered);
  enter<op::native_dropout, op::bernoulli__float, op::masked_fill_Scalar, op::where_self>(entered);
  enter<op::add_Tensor, op::add__Tensor, op::sub_Tensor, op::rsub_Scalar, op::mul_Tensor, op::mul_Scalar,
        op::mul__Tensor, op::div_Tensor, op::div_Scalar, op::div__Scalar, op::pow_Tensor_Scalar>(entered);
  enter<op::neg, op::exp, op::rsqrt, op::sin, op::cos, op::mean_dim, op::sum_dim_IntList>(entered);
  enter<op::empty_memory_format, op::empty_like, op::clone, op::copy_, op::_to_copy, op::cat>(entered);
  enter<op::max_pool2d_with_indices, op::_adaptive_avg_pool2d>(entered);
}

}  // namespace bayplan::recompute

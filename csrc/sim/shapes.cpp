#include "sim/shapes.h"

#include <ATen/ExpandUtils.h>
#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mul.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <unordered_map>
#include <vector>

#include "sim/known.h"

namespace sim {
namespace {

std::atomic<bool> on{false};
std::atomic<double> item_value{1};

constexpr const char* kRemedy = ", and device sim works on shapes only (use_sim(shapes_only=True)): ";

// Some shape functions are written in Python: modes of the program's own, as `with torch.device(...)` is one, do not
// see what these call.
class WithoutFunctionModes {
 public:
  WithoutFunctionModes() : before_(at::impl::PythonTorchFunctionTLS::get_disabled_state()) {
    at::impl::PythonTorchFunctionTLS::set_disabled_state(at::impl::TorchFunctionDisabledState::ALL_DISABLED);
  }
  ~WithoutFunctionModes() { at::impl::PythonTorchFunctionTLS::set_disabled_state(before_); }
  WithoutFunctionModes(const WithoutFunctionModes&) = delete;
  WithoutFunctionModes& operator=(const WithoutFunctionModes&) = delete;

 private:
  at::impl::TorchFunctionDisabledState before_;
};

bool is_mask(const at::Tensor& index) {
  return index.defined() && (index.scalar_type() == at::kBool || index.scalar_type() == at::kByte);
}

// Indexing is tagged as sized by data for the sake of masks.
bool indexes_by_mask(c10::ArrayRef<c10::IValue> arguments) {
  for (const c10::IValue& value : arguments) {
    if (!value.isOptionalTensorList()) continue;
    for (const std::optional<at::Tensor>& index : value.toOptionalTensorVector())
      if (index && is_mask(*index)) return true;
  }
  return false;
}

using Arguments = c10::ArrayRef<c10::IValue>;

// Statistics of a norm, its second and third result, are single precision to its shape function, as on CUDA. The CPU
// keeps them in half precision where all that it is given is.
void convert_statistics(Arguments arguments, c10::IValue* results) {
  const c10::ScalarType type = arguments[0].toTensor().scalar_type();
  if (!c10::isReducedFloatingType(type)) return;
  for (const c10::IValue& value : arguments)
    if (value.isTensor() && value.toTensor().defined() && value.toTensor().scalar_type() == at::kFloat) return;
  for (c10::IValue* result : {results + 1, results + 2}) {
    const at::Tensor tensor = result->toTensor();
    if (tensor.scalar_type() == at::kFloat) *result = at::empty_like(tensor, tensor.options().dtype(type));
  }
}

// Where a batch norm does not train, the CPU's kernel returns no statistics.
void convert_batch_statistics(Arguments arguments, c10::IValue* results) {
  convert_statistics(arguments, results);
  const auto training = std::find_if(arguments.begin(), arguments.end(), [](const auto& one) { return one.isBool(); });
  if (training == arguments.end() || training->toBool()) return;
  for (c10::IValue* result : {results + 1, results + 2}) *result = at::empty({0}, result->toTensor().options());
}

// A mean or sum of losses lies where the CPU's kernel first wrote the loss of each element.
void keep_room_of_elements(Arguments arguments, c10::IValue* results) {
  const at::Tensor loss = results[0].toTensor();
  const auto sizes = at::infer_size(arguments[0].toTensor().sizes(), arguments[1].toTensor().sizes());
  const int64_t bytes = c10::multiply_integers(sizes) * static_cast<int64_t>(loss.itemsize());
  if (loss.dim() == 0) loss.storage().set_nbytes(static_cast<size_t>(std::max<int64_t>(bytes, loss.itemsize())));
}

// The shape function's result is contiguous, the kernel's lies as its operands do.
void keep_layout_of_gradient(Arguments arguments, c10::IValue* results) {
  if (arguments[0].toTensor().is_floating_point())
    results[0] = at::mul(arguments[0].toTensor(), arguments[1].toTensor());
}

// The shape function gives one tensor for the gradients of both biases, the kernel two.
void part_biases(Arguments /*arguments*/, c10::IValue* results) { results[4] = at::empty_like(results[4].toTensor()); }

using Correction = void (*)(Arguments, c10::IValue*);

// Where PyTorch's shape functions describe other results than those of the CPU's kernels; the tests compare them.
const std::unordered_map<std::string, Correction>& corrections() {
  static const auto* known =
      new std::unordered_map<std::string, Correction>{{"native_layer_norm", convert_statistics},
                                                      {"native_batch_norm", convert_batch_statistics},
                                                      {"_native_batch_norm_legit", convert_batch_statistics},
                                                      {"_native_batch_norm_legit_functional", convert_batch_statistics},
                                                      {"_batch_norm_with_update", convert_statistics},
                                                      {"mse_loss", keep_room_of_elements},
                                                      {"smooth_l1_loss", keep_room_of_elements},
                                                      {"binary_cross_entropy", keep_room_of_elements},
                                                      {"native_dropout_backward", keep_layout_of_gradient},
                                                      {"mkldnn_rnn_layer_backward", part_biases}};
  return *known;
}

}  // namespace

bool shapes_only() { return on.load(std::memory_order_relaxed); }

void set_shape_mode(ShapeMode mode) {
  on = mode.on;
  forget_all_known();
  item_value = mode.item_value;
}

at::Scalar item_of(c10::ScalarType dtype) {
  const double value = item_value;
  if (dtype == at::kBool) return at::Scalar(value != 0);
  if (c10::isIntegralType(dtype, /*includeBool=*/false)) return at::Scalar(static_cast<int64_t>(value));
  if (c10::isComplexType(dtype)) return at::Scalar(c10::complex<double>(value));
  return at::Scalar(value);
}

void require_shape(const OpInfo& info, c10::DispatchKey key, c10::ArrayRef<c10::IValue> arguments) {
  TORCH_CHECK(key == c10::DispatchKey::CPU, "the operator ", info.name, " works on sparse tensors, whose sizes depend ",
              "on data", kRemedy, "use dense ones (nn.Embedding(sparse=False)), or leave shapes_only out");
  TORCH_CHECK(!info.answers, "the operator ", info.name, " answers with what the data are", kRemedy,
              "leave the question out, or leave shapes_only out");
  if (!info.sized_by_data || (info.takes_host_indices && !indexes_by_mask(arguments))) return;
  TORCH_CHECK(false, "the size of what the operator ", info.name, " returns depends on data", kRemedy,
              "choose by torch.where, or by indices of a known number, or leave shapes_only out");
}

void run_shape_function(const OpInfo& info, const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  const at::DisableRecordFunctionGuard silent;
  const WithoutFunctionModes without;
  const size_t count = op.schema().arguments().size();
  const std::vector<c10::IValue> arguments(stack.end() - static_cast<ptrdiff_t>(count), stack.end());
  try {
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::Meta), &stack);
  } catch (const c10::NotImplementedError& error) {
    TORCH_CHECK(false, "the operator ", info.name, " has no shape function in PyTorch", kRemedy,
                "use another operator, or leave shapes_only out (", error.what_without_backtrace(), ")");
  }
  const auto corrected = corrections().find(info.name);
  if (corrected != corrections().end())
    corrected->second(arguments, stack.data() + stack.size() - op.schema().returns().size());
}

}  // namespace sim

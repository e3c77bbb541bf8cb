#include "sim/shapes.h"

#include <ATen/ExpandUtils.h>
#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/ops/cat.h>
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
#include "sim/recurrent.h"

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

// The shape function knows nothing of the workspace that a layer keeps for its backward pass.
void keep_workspace(Arguments arguments, c10::IValue* results) {
  const at::Tensor input = arguments[0].toTensor();
  const int64_t bytes = lstm_workspace_bytes(input.size(0), input.size(1), input.size(2),
                                             arguments[2].toTensor().size(1), input.scalar_type());
  results[3] = at::empty({bytes}, input.options().dtype(at::kByte));
}

// What a kernel allocated, and then made smaller: the storage stays as large.
at::Tensor shrunk(int64_t elements, at::IntArrayRef sizes, const at::TensorOptions& options) {
  at::Tensor tensor = at::empty(sizes, options);
  const int64_t bytes = elements * static_cast<int64_t>(tensor.itemsize());
  if (bytes > static_cast<int64_t>(tensor.storage().nbytes())) tensor.storage().set_nbytes(static_cast<size_t>(bytes));
  return tensor;
}

// Whether the CPU sums rows of the table without writing down to which bag each index belongs.
bool sums_rows_at_once(const at::Tensor& table, const c10::IValue& weights, int64_t padding) {
  const auto plain = [](const at::Tensor& tensor) {
    return tensor.scalar_type() == at::kFloat || c10::isReducedFloatingType(tensor.scalar_type());
  };
  if (!plain(table) || table.stride(1) != 1 || padding >= 0) return false;
  if (weights.isNone() || !weights.toTensor().defined()) return true;
  return plain(weights.toTensor()) && weights.toTensor().stride(0) == 1;
}

// Second to fourth result of EmbeddingBag: the bag of each index, each bag's size, and where a maximum came from. The
// shape function says what CUDA's kernel returns.
void size_bags(Arguments arguments, c10::IValue* results, bool trains) {
  enum : int64_t { kSum, kMean, kMax };
  const at::Tensor table = arguments[0].toTensor(), indices = arguments[1].toTensor(),
                   offsets = arguments[2].toTensor();
  const int64_t mode = arguments[4].toInt(), listed = offsets.size(0), count = indices.size(0);
  const int64_t bags = listed - (arguments[7].toBool() ? 1 : 0);
  const auto options = offsets.options().dtype(c10::promoteTypes(indices.scalar_type(), offsets.scalar_type()));
  const bool at_once = mode == kSum && sums_rows_at_once(table, arguments[6], arguments[8].toInt());
  const int64_t sized = trains || mode != kSum ? bags : listed;
  results[1] = at_once ? at::empty({0}, options) : shrunk(count + 1, {count}, options);
  results[2] = shrunk(listed, {sized}, options);
  results[3] = mode == kMax ? shrunk(sized, {bags, table.size(1)}, options) : at::empty({sized}, options);
}
void size_trained_bags(Arguments arguments, c10::IValue* results) { size_bags(arguments, results, true); }
void size_other_bags(Arguments arguments, c10::IValue* results) { size_bags(arguments, results, false); }

// The first result in the layout that kernels of images take from the tensor of that place, channels last or first.
template <size_t place>
void lie_like_image(Arguments arguments, c10::IValue* results) {
  if (!results[0].toTensor().defined()) return;
  results[0] = results[0].toTensor().contiguous(arguments[place].toTensor().suggest_memory_format());
}

// Exactly that of the tensor of that place, whatever it is.
template <size_t place>
void lie_like(Arguments arguments, c10::IValue* results) {
  results[0] = at::empty_like(arguments[place].toTensor());
}

void lie_in_order(Arguments /*arguments*/, c10::IValue* results) { results[0] = results[0].toTensor().contiguous(); }

// The CPU's convolutions lie channels last where the input does, or the weight.
void lie_like_image_or_weight(Arguments arguments, c10::IValue* results) {
  const at::Tensor result = results[0].toTensor();
  for (const size_t place : {0, 1}) {
    const auto layout = arguments[place].toTensor().suggest_memory_format();
    if (layout != at::MemoryFormat::Contiguous) results[0] = result.contiguous(layout);
  }
}

// Where the columns are more than the image, the kernel's result lies in their room.
void keep_room_of_columns(Arguments arguments, c10::IValue* results) {
  const at::Tensor image = results[0].toTensor();
  results[0] = shrunk(arguments[0].toTensor().numel(), image.sizes(), image.options());
}

// The CPU joins both parts again, one dimension after the other.
void roll_as_joined(Arguments arguments, c10::IValue* results) {
  const auto shifts = arguments[1].toIntVector(), dims = arguments[2].toIntVector();
  at::Tensor rolled = arguments[0].toTensor();
  if (dims.empty() || rolled.numel() == 0) return;
  for (size_t i = 0; i < dims.size(); ++i) {
    const int64_t size = rolled.size(dims[i]), start = (((size - shifts[i]) % size) + size) % size;
    rolled = at::cat({rolled.narrow(dims[i], start, size - start), rolled.narrow(dims[i], 0, start)}, dims[i]);
  }
  results[0] = rolled;
}

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
                                                      {"native_batch_norm_backward", lie_like_image<1>},
                                                      {"native_group_norm_backward", lie_like_image<1>},
                                                      {"hardswish_backward", lie_like<0>},
                                                      {"reflection_pad2d", lie_like_image<0>},
                                                      {"reflection_pad2d_backward", lie_like_image<1>},
                                                      {"pixel_shuffle", lie_like_image<0>},
                                                      {"glu_backward", lie_in_order},
                                                      {"convolution", lie_like_image_or_weight},
                                                      {"col2im", keep_room_of_columns},
                                                      {"roll", roll_as_joined},
                                                      {"_embedding_bag", size_trained_bags},
                                                      {"_embedding_bag_forward_only", size_other_bags},
                                                      {"mkldnn_rnn_layer", keep_workspace},
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

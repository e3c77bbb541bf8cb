#include "profiler/flops.h"

#include <ATen/core/Tensor.h>

#include <algorithm>

namespace bayplan {
namespace {

using Arguments = c10::ArrayRef<const c10::IValue>;

const at::Tensor* tensor_at(Arguments arguments, size_t index) {
  if (index >= arguments.size() || !arguments[index].isTensor()) {
    return nullptr;
  }
  const at::Tensor& tensor = arguments[index].toTensor();
  return tensor.defined() ? &tensor : nullptr;
}

// (…, k) times (k, n), or times (k): numel(a) products for each column.
int64_t product(Arguments arguments, size_t first) {
  const at::Tensor* a = tensor_at(arguments, first);
  const at::Tensor* b = tensor_at(arguments, first + 1);
  if (a == nullptr || b == nullptr || b->dim() == 0) {
    return 0;
  }
  return 2 * a->numel() * (b->dim() == 1 ? 1 : b->size(-1));
}

// (…, k) times the transpose of (n, k).
int64_t linear(Arguments arguments) {
  const at::Tensor* input = tensor_at(arguments, 0);
  const at::Tensor* weight = tensor_at(arguments, 1);
  return input == nullptr || weight == nullptr || weight->dim() == 0 ? 0 : 2 * input->numel() * weight->size(0);
}

// Products of widths d (queries and keys) and e (values) over all pairs of a query and a key.
int64_t attention(Arguments arguments, size_t first, int64_t of_d, int64_t of_e) {
  const at::Tensor* query = tensor_at(arguments, first);
  const at::Tensor* key = tensor_at(arguments, first + 1);
  const at::Tensor* value = tensor_at(arguments, first + 2);
  if (query == nullptr || key == nullptr || value == nullptr || query->dim() < 2 || query->size(-1) == 0) {
    return 0;
  }
  const int64_t pairs = query->numel() / query->size(-1) * key->size(-2);
  return 2 * pairs * (of_d * query->size(-1) + of_e * value->size(-1));
}

int64_t integer_at(Arguments arguments, size_t index, size_t position) {
  const c10::IValue& value = arguments[index];
  if (value.isIntList()) {
    const auto list = value.toIntVector();
    return list.empty() ? 0 : list[std::min(position, list.size() - 1)];
  }
  return 0;
}

int64_t spatial_size(const at::Tensor& image) {
  int64_t size = 1;
  for (int64_t dimension = 2; dimension < image.dim(); ++dimension) {
    size *= image.size(dimension);
  }
  return size;
}

// Arguments: input, weight, bias, stride, padding, dilation, transposed, …
int64_t convolution(Arguments arguments) {
  const at::Tensor* input = tensor_at(arguments, 0);
  const at::Tensor* weight = tensor_at(arguments, 1);
  if (input == nullptr || weight == nullptr || arguments.size() < 7 || !arguments[6].isBool() || input->dim() < 3 ||
      input->dim() != weight->dim()) {
    return 0;
  }
  if (arguments[6].toBool()) {  // transposed: every input position meets the whole kernel
    return 2 * input->size(0) * spatial_size(*input) * weight->numel();
  }
  int64_t positions = 1;
  for (int64_t dimension = 2; dimension < input->dim(); ++dimension) {
    const size_t axis = static_cast<size_t>(dimension - 2);
    const int64_t reach = integer_at(arguments, 5, axis) * (weight->size(dimension) - 1) + 1;
    const int64_t stride = std::max<int64_t>(integer_at(arguments, 3, axis), 1);
    positions *= (input->size(dimension) + 2 * integer_at(arguments, 4, axis) - reach) / stride + 1;
  }
  return 2 * input->size(0) * positions * weight->numel();
}

// Arguments: gradient of the output, input, weight, bias sizes, stride, padding, dilation, transposed, …, output mask.
int64_t convolution_backward(Arguments arguments) {
  const at::Tensor* gradient = tensor_at(arguments, 0);
  const at::Tensor* input = tensor_at(arguments, 1);
  const at::Tensor* weight = tensor_at(arguments, 2);
  if (gradient == nullptr || input == nullptr || weight == nullptr || arguments.size() < 11 || !arguments[7].isBool() ||
      !arguments[10].isBoolList()) {
    return 0;
  }
  const auto mask = arguments[10].toBoolList();
  const int64_t wanted = (mask.get(0) ? 1 : 0) + (mask.get(1) ? 1 : 0);
  const at::Tensor& positions = arguments[7].toBool() ? *input : *gradient;
  return wanted * 2 * positions.size(0) * spatial_size(positions) * weight->numel();
}

}  // namespace

int64_t count_flops(FlopRule rule, Arguments arguments) {
  switch (rule) {
    case FlopRule::kProduct:
      return product(arguments, 0);
    case FlopRule::kAddedProduct:
      return product(arguments, 1);
    case FlopRule::kLinear:
      return linear(arguments);
    case FlopRule::kConvolution:
      return convolution(arguments);
    case FlopRule::kConvolutionBackward:
      return convolution_backward(arguments);
    case FlopRule::kAttention:
      return attention(arguments, 0, 1, 1);
    case FlopRule::kAttentionBackward:  // scores again, two gradients of width d, two products of width e
      return attention(arguments, 1, 3, 2);
    case FlopRule::kNone:
      break;
  }
  return 0;
}

}  // namespace bayplan

#include "sim/op_info.h"

#include <ATen/core/enum_tag.h>

#include <string>
#include <unordered_map>
#include <unordered_set>

#include "sim/flops.h"
#include "sim/machine.h"

namespace sim {
namespace {

using Names = std::unordered_set<std::string>;

bool starts_with(const std::string& text, const char* prefix) { return text.rfind(prefix, 0) == 0; }

const std::unordered_map<std::string, OpClass>& classes() {
  static const auto* known = [] {
    auto* map = new std::unordered_map<std::string, OpClass>();
    auto add = [map](OpClass op_class, std::initializer_list<const char*> names) {
      for (const char* name : names) (*map)[name] = op_class;
    };
    add(OpClass::kConvolution, {"convolution", "_convolution", "convolution_backward", "convolution_overrideable"});
    add(OpClass::kAttention,
        {"_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention_for_cpu_backward"});
    add(OpClass::kCopy, {"_copy_from",
                         "cat",
                         "index_select",
                         "gather",
                         "embedding",
                         "index",
                         "take",
                         "flip",
                         "roll",
                         "constant_pad_nd",
                         "scatter",
                         "scatter_",
                         "index_put_",
                         "_index_put_impl_",
                         "index_copy_",
                         "slice_backward",
                         "select_backward",
                         "zero_",
                         "fill_",
                         "tril",
                         "triu",
                         "resize_"});
    add(OpClass::kReduction, {"sum",
                              "mean",
                              "prod",
                              "max",
                              "min",
                              "amax",
                              "amin",
                              "aminmax",
                              "argmax",
                              "argmin",
                              "all",
                              "any",
                              "norm",
                              "linalg_vector_norm",
                              "_foreach_norm",
                              "var",
                              "std",
                              "var_mean",
                              "std_mean",
                              "logsumexp",
                              "cumsum",
                              "cumprod",
                              "_softmax",
                              "_softmax_backward_data",
                              "_log_softmax",
                              "_log_softmax_backward_data",
                              "native_layer_norm",
                              "native_layer_norm_backward",
                              "native_group_norm",
                              "native_group_norm_backward",
                              "native_batch_norm",
                              "native_batch_norm_backward",
                              "_fused_rms_norm",
                              "nll_loss_forward",
                              "nll_loss2d_forward",
                              "mse_loss",
                              "embedding_dense_backward",
                              "topk",
                              "sort",
                              "count_nonzero"});
    return map;
  }();
  return *known;
}

OpClass classify(const c10::OperatorHandle& op, const std::string& name) {
  auto at = classes().find(name);
  if (at != classes().end()) return at->second;
  if (flop_formula(name)) return OpClass::kMatmul;
  if (op.hasTag(at::Tag::reduction)) return OpClass::kReduction;
  const bool in_place = !name.empty() && name.back() == '_';
  if (op.hasTag(at::Tag::pointwise) || starts_with(name, "_foreach_") || starts_with(name, "_fused_") || in_place)
    return OpClass::kElementwise;
  return OpClass::kOther;
}

// In-place operators that overwrite without looking.
const Names& overwriting() {
  static const auto* names =
      new Names{"zero_",   "fill_",       "normal_",    "uniform_",     "random_",       "bernoulli_",
                "cauchy_", "log_normal_", "geometric_", "exponential_", "_foreach_zero_"};
  return *names;
}

uint8_t use_of(const c10::Argument& argument, bool overwrites) {
  const auto* alias = argument.alias_info();
  if (!alias || !alias->isWrite()) return kRead;
  return argument.is_out() || overwrites ? kWrite : kRead | kWrite;
}

bool returns_view(const c10::FunctionSchema& schema) {
  bool any = false;
  for (const c10::Argument& result : schema.returns()) {
    if (!result.alias_info()) return false;
    if (result.alias_info()->isWrite()) return false;
    any = true;
  }
  return any;
}

bool holds_tensors(const c10::TypePtr& type) {
  if (auto list = type->cast<c10::ListType>()) return holds_tensors(list->getElementType());
  if (auto optional = type->cast<c10::OptionalType>()) return holds_tensors(optional->getElementType());
  return type->kind() == c10::TypeKind::TensorType;
}

bool is_generator(const c10::TypePtr& type) {
  if (auto optional = type->cast<c10::OptionalType>()) return is_generator(optional->getElementType());
  return type->kind() == c10::TypeKind::GeneratorType;
}

bool answers_by_data(const c10::OperatorHandle& op) {
  if (op.hasTag(at::Tag::data_dependent_output)) return true;
  for (const c10::Argument& result : op.schema().returns())
    if (!holds_tensors(result.type())) return true;
  return false;
}

std::vector<UndeclaredWrite>& undeclared_writes() {
  static auto* writes = new std::vector<UndeclaredWrite>();
  return *writes;
}

}  // namespace

void set_undeclared_writes(std::vector<UndeclaredWrite> writes) { undeclared_writes() = std::move(writes); }

OpInfo::OpInfo(const c10::OperatorHandle& op) {
  const c10::FunctionSchema& schema = op.schema();
  const std::string full = schema.name();
  const std::string bare = starts_with(full, "aten::") ? full.substr(6) : full;
  static const Names kGathering = {"embedding", "index_select", "gather", "index", "take", "_unsafe_index"};
  static const Names kIndexing = {"index",     "_unsafe_index",    "index_put_",
                                  "index_put", "_index_put_impl_", "_unsafe_index_put"};
  name = intern(bare);
  op_class = classify(op, bare);
  flops = flop_formula(bare);
  view = returns_view(schema);
  sized_by_data = op.hasTag(at::Tag::dynamic_output_shape);
  answers = answers_by_data(op);
  waits = sized_by_data || answers;
  gathers = kGathering.count(bare) > 0;
  takes_host_indices = kIndexing.count(bare) > 0;
  for (const c10::Argument& argument : schema.arguments())
    uses.push_back(use_of(argument, overwriting().count(bare) > 0));
  drops_out = full == "aten::native_dropout" && schema.overload_name().empty();
  for (size_t i = 0; i < schema.arguments().size(); ++i)
    if (is_generator(schema.arguments()[i].type())) generator = i;
  for (const UndeclaredWrite& write : undeclared_writes()) {
    if (write.op != full) continue;
    for (const std::string& argument : write.arguments)
      if (const auto at = schema.argumentIndexWithName(argument)) undeclared |= uint64_t{1} << *at;
    if (write.condition) condition = schema.argumentIndexWithName(*write.condition);
  }
}

}  // namespace sim

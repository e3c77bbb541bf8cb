// One file: the rule which operators do work, and what is known of each.
#include "profiler/operators.h"

#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/SparseTensorImpl.h>
#include <ATen/core/enum_tag.h>

#include <array>
#include <atomic>
#include <cstring>
#include <mutex>
#include <set>
#include <string_view>
#include <unordered_map>

#include "profiler/handles.h"

namespace bayplan {
namespace {

// ---- the rule: which operators do work ------------------------------------------------------------------------------

// Views, allocations and bookkeeping whose schema does not say so.
const std::set<std::string_view> kIdle = {
    "aten::_backward",
    "aten::_efficientzerotensor",
    "aten::_fw_primal",
    "aten::_make_dual",
    "aten::_resize_output_",
    "aten::_unsafe_view",
    "aten::atleast_1d",
    "aten::atleast_2d",
    "aten::atleast_3d",
    "aten::broadcast_tensors",
    "aten::data",
    "aten::lift",
    "aten::meshgrid",
    "aten::record_stream",
    "aten::requires_grad_",
    "aten::resize_",
    "aten::resize_as_",
    "aten::retain_grad",
    "aten::set_",
    "aten::set_data",
    "aten::unsafe_chunk",
    "aten::unsafe_split",
    "aten::unsafe_split_with_sizes",
};

// Operators that return no tensor and write none, but read data. All others of that shape only ask for metadata.
const std::set<std::string_view> kReaders = {
    "aten::_assert_async",
    "aten::_linalg_check_errors",
    "aten::_local_scalar_dense",
    "aten::allclose",
    "aten::equal",
    "aten::is_nonzero",
    "aten::item",
};

bool starts_with(std::string_view text, std::string_view prefix) { return text.substr(0, prefix.size()) == prefix; }

bool is_allocation(std::string_view name) {
  return starts_with(name, "aten::empty") || starts_with(name, "aten::new_empty");
}

bool is_communication(std::string_view name) {
  return starts_with(name, "c10d::") || starts_with(name, "_c10d_functional::") ||
         starts_with(name, "_c10d_functional_autograd::");
}

bool holds_tensors(const c10::TypePtr& type) {
  if (type->kind() == c10::TypeKind::TensorType) {
    return true;
  }
  for (const auto& contained : type->containedTypes()) {
    if (holds_tensors(contained)) {
      return true;
    }
  }
  return false;
}

std::vector<bool> written_arguments(const c10::FunctionSchema& schema) {
  std::vector<bool> writes;
  for (const auto& argument : schema.arguments()) {
    writes.push_back(argument.alias_info() != nullptr && argument.alias_info()->isWrite());
  }
  return writes;
}

bool returns_only_views(const c10::FunctionSchema& schema) {
  for (const auto& value : schema.returns()) {
    if (value.alias_info() == nullptr || value.alias_info()->isWrite()) {
      return false;
    }
  }
  return !schema.returns().empty();
}

bool returns_tensors(const c10::FunctionSchema& schema) {
  for (const auto& value : schema.returns()) {
    if (holds_tensors(value.type())) {
      return true;
    }
  }
  return false;
}

bool does_work(const c10::OperatorHandle& op, const std::vector<bool>& writes) {
  const c10::FunctionSchema& schema = op.schema();
  const std::string_view name = schema.name();
  if (starts_with(name, "profiler::") || starts_with(name, "prim::")) {
    return false;
  }
  if (is_communication(name)) {
    return true;
  }
  if (op.hasTag(at::Tag::inplace_view) || kIdle.count(name) > 0 || is_allocation(name)) {
    return false;
  }
  for (const bool written : writes) {
    if (written) {
      return true;
    }
  }
  if (returns_only_views(schema)) {
    return false;
  }
  return returns_tensors(schema) || kReaders.count(name) > 0;
}

// ---- arithmetic -----------------------------------------------------------------------------------------------------

const std::unordered_map<std::string_view, FlopRule> kFlopRules = {
    {"aten::mm", FlopRule::kProduct},
    {"aten::mv", FlopRule::kProduct},
    {"aten::dot", FlopRule::kProduct},
    {"aten::bmm", FlopRule::kProduct},
    {"aten::addmm", FlopRule::kAddedProduct},
    {"aten::addmv", FlopRule::kAddedProduct},
    {"aten::addmm_", FlopRule::kAddedProduct},
    {"aten::_addmm_activation", FlopRule::kAddedProduct},
    {"aten::baddbmm", FlopRule::kAddedProduct},
    {"aten::baddbmm_", FlopRule::kAddedProduct},
    {"aten::linear", FlopRule::kLinear},
    {"aten::convolution", FlopRule::kConvolution},
    {"aten::_convolution", FlopRule::kConvolution},
    {"aten::convolution_backward", FlopRule::kConvolutionBackward},
    {"aten::scaled_dot_product_attention", FlopRule::kAttention},
    {"aten::_scaled_dot_product_flash_attention_for_cpu_backward", FlopRule::kAttentionBackward},
    {"aten::_scaled_dot_product_flash_attention_backward", FlopRule::kAttentionBackward},
    {"aten::_scaled_dot_product_efficient_attention_backward", FlopRule::kAttentionBackward},
    {"aten::_scaled_dot_product_cudnn_attention_backward", FlopRule::kAttentionBackward},
    {"aten::_scaled_dot_product_fused_attention_overrideable_backward", FlopRule::kAttentionBackward},
};

FlopRule flop_rule(std::string_view name) {
  const auto found = kFlopRules.find(name);
  return found == kFlopRules.end() ? FlopRule::kNone : found->second;
}

// ---- the registry ---------------------------------------------------------------------------------------------------

struct Registry {
  std::mutex mutex;
  std::unordered_map<std::string, const OperatorInfo*> by_name;
  std::vector<const OperatorInfo*> by_id;
};

Registry& registry() {
  static auto* instance = new Registry();  // never destroyed: other threads may still run operators at exit
  return *instance;
}

const OperatorInfo* describe(const c10::OperatorName& key) {
  Registry& all = registry();
  const std::string name = c10::toString(key);
  const std::lock_guard<std::mutex> lock(all.mutex);
  const auto found = all.by_name.find(name);
  if (found != all.by_name.end()) {
    return found->second;
  }
  const auto op = c10::Dispatcher::singleton().findSchema(key);
  if (!op.has_value()) {
    return nullptr;
  }
  const auto writes = written_arguments(op->schema());
  const auto* info =
      new OperatorInfo{static_cast<uint32_t>(all.by_id.size()), name,  does_work(*op, writes), is_communication(name),
                       flop_rule(op->schema().name()),          writes};
  all.by_name.emplace(name, info);
  all.by_id.push_back(info);
  return info;
}

// Cache: a schema's name is one character array for the life of the operator, so its address identifies the operator.
// The text is compared too, because a library may unregister an operator and its memory be used for another's name.
struct CacheEntry {
  const char* key;
  std::string text;
  std::string overload;
  const OperatorInfo* info;
};

constexpr size_t kSlots = 8192;  // a power of two; some 3,000 operators exist, a step uses about 100
constexpr size_t kProbes = 4;
std::array<std::atomic<const CacheEntry*>, kSlots> cache{};

size_t slot_of(const char* key, size_t probe) {
  const auto address = reinterpret_cast<uintptr_t>(key);
  return ((address >> 4) ^ (address >> 17) ^ (probe * 0x9e5)) & (kSlots - 1);
}

// What names an operator: its schema's own texts.
struct Texts {
  const char* key;
  const char* overload;
};

bool matches(const CacheEntry& entry, const Texts& texts) {
  return entry.key == texts.key && std::strcmp(entry.text.c_str(), texts.key) == 0 &&
         std::strcmp(entry.overload.c_str(), texts.overload) == 0;
}

const OperatorInfo* find_quickly(const Texts& texts) {
  for (size_t probe = 0; probe < kProbes; ++probe) {
    const CacheEntry* entry = cache[slot_of(texts.key, probe)].load(std::memory_order_acquire);
    if (entry == nullptr) {
      return nullptr;
    }
    if (matches(*entry, texts)) {
      return entry->info;
    }
  }
  return nullptr;
}

const OperatorInfo* find_slowly(const std::optional<c10::OperatorName>& name, const Texts& texts) {
  const OperatorInfo* info = name.has_value() ? describe(*name) : nullptr;
  if (info == nullptr) {
    return nullptr;  // not cached: the text of such a range may be gone after this call
  }
  const auto* entry = new CacheEntry{texts.key, texts.key, texts.overload, info};
  for (size_t probe = 0; probe < kProbes; ++probe) {
    const CacheEntry* expected = nullptr;
    auto& slot = cache[slot_of(texts.key, probe)];
    if (slot.compare_exchange_strong(expected, entry, std::memory_order_acq_rel) || expected->key == texts.key) {
      slot.store(entry, std::memory_order_release);  // replaced entries stay alive: another thread may be reading one
      return info;
    }
  }
  cache[slot_of(texts.key, 0)].store(entry, std::memory_order_release);
  return info;
}

}  // namespace

bool does_work(const c10::OperatorHandle& op) { return does_work(op, written_arguments(op.schema())); }

const OperatorInfo* find_operator(const at::RecordFunction& frame) {
  const Texts texts{frame.name(), frame.overload_name()};
  const OperatorInfo* known = find_quickly(texts);
  return known != nullptr ? known : find_slowly(frame.operator_name(), texts);
}

const OperatorInfo* find_operator(const c10::OperatorHandle& op) {
  if (!op.hasSchema()) {
    return nullptr;
  }
  const c10::FunctionSchema& schema = op.schema();
  const Texts texts{schema.name().c_str(), schema.overload_name().c_str()};
  const OperatorInfo* known = find_quickly(texts);
  return known != nullptr ? known : find_slowly(op.operator_name(), texts);
}

const OperatorInfo* find_operator(const std::string& name) {
  const size_t dot = name.find('.');
  return describe(c10::OperatorName(name.substr(0, dot), dot == std::string::npos ? "" : name.substr(dot + 1)));
}

c10::SmallVector<at::Tensor, 3> sparse_parts(const at::Tensor& tensor) {
  const at::TensorImpl* body = tensor.unsafeGetTensorImpl();  // not by its layout, which subclasses may claim
  if (const auto* sparse = dynamic_cast<const at::SparseTensorImpl*>(body)) {
    return {sparse->indices_, sparse->values_};
  }
  if (const auto* sparse = dynamic_cast<const at::SparseCsrTensorImpl*>(body)) {
    return {sparse->compressed_indices(), sparse->plain_indices(), sparse->values()};
  }
  return {};
}

bool is_compiled_region(const char* name) {
  return std::strncmp(name, "Torch-Compiled Region", 21) == 0 || std::strncmp(name, "## Call CompiledFxGraph", 23) == 0;
}

std::vector<std::string> operator_names() {
  Registry& all = registry();
  const std::lock_guard<std::mutex> lock(all.mutex);
  std::vector<std::string> names;
  for (const OperatorInfo* info : all.by_id) {
    names.push_back(info->name);
  }
  return names;
}

}  // namespace bayplan

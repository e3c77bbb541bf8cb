#include "recompute/recipe.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/enum_tag.h>
#include <c10/core/TensorOptions.h>

#include <array>
#include <atomic>
#include <mutex>
#include <string_view>
#include <unordered_map>

#include "profiler/handles.h"

namespace bayplan::recompute {
namespace {

constexpr size_t kMostOperators = 16384;

std::array<std::atomic<const Recipe*>, kMostOperators> by_id{};
std::mutex making;

std::unordered_map<std::string, SecretWrite>& secret_writes() {
  static auto* all = new std::unordered_map<std::string, SecretWrite>();
  return *all;
}

bool starts_with(std::string_view text, std::string_view prefix) { return text.substr(0, prefix.size()) == prefix; }

bool is_allocation(std::string_view name) {
  return starts_with(name, "aten::empty") || starts_with(name, "aten::new_empty");
}

std::optional<size_t> place_of(const c10::FunctionSchema& schema, const std::string& argument) {
  const std::optional<int> place = schema.argumentIndexWithName(argument);
  return place.has_value() ? std::optional<size_t>(*place) : std::nullopt;
}

// An argument that is written without being read: results given by the caller, and what fills a tensor.
Places overwritten(const c10::FunctionSchema& schema, const Places& writes, bool random) {
  const std::string_view name = schema.name();
  const bool fills = random || name == "aten::copy_" || name == "aten::fill_" || name == "aten::zero_";
  Places result;
  for (size_t place = 0; place < schema.arguments().size(); ++place) {
    if (writes.has(place) && (fills || schema.arguments()[place].is_out())) result.add(place);
  }
  return result;
}

}  // namespace

const Recipe* make_recipe(const OperatorInfo& info) {
  const std::lock_guard<std::mutex> lock(making);
  if (const Recipe* known = by_id[info.id].load()) return known;
  const size_t dot = info.name.find('.');
  const std::string base = info.name.substr(0, dot);
  const auto op = c10::Dispatcher::singleton().findSchema(
      c10::OperatorName(base, dot == std::string::npos ? "" : info.name.substr(dot + 1)));
  if (!op.has_value()) return nullptr;
  auto* recipe = new Recipe();
  recipe->info = &info;
  recipe->op.emplace(*op);
  recipe->random = op->hasTag(at::Tag::nondeterministic_seeded);
  if (recipe->random) recipe->dropout = place_of(op->schema(), "dropout_p");
  recipe->allocates = is_allocation(base);
  for (size_t place = 0; place < info.writes.size(); ++place) {
    if (info.writes[place]) recipe->writes.add(place);
  }
  recipe->overwrites = overwritten(op->schema(), recipe->writes, recipe->random);
  recipe->communicates_in_place = starts_with(base, "c10d::");
  recipe->transparent = starts_with(base, "_c10d_functional_autograd::");
  recipe->opens_window = base == "_c10d_functional::wait_tensor";
  const auto found = secret_writes().find(base);
  if (found != secret_writes().end()) {
    for (const std::string& argument : found->second.arguments) {
      if (const auto place = place_of(op->schema(), argument)) recipe->secret_writes.add(*place);
    }
    if (found->second.condition.has_value()) recipe->secretly_if = place_of(op->schema(), *found->second.condition);
  }
  recipe->may_write = recipe->communicates_in_place || recipe->secret_writes.any() || recipe->writes.any();
  recipe->tells_number = base == "aten::_local_scalar_dense";
  if (base == "aten::copy_") recipe->target = 0;
  if (base == "aten::_to_copy") recipe->target = place_of(op->schema(), "device");
  by_id[info.id].store(recipe);
  return recipe;
}

namespace {

bool is_cast_for(const Recipe& recipe, c10::DeviceType device) {
  if (!at::autocast::is_autocast_enabled(device)) return false;
  const c10::DispatchKey key = at::autocast::get_autocast_dispatch_key_from_device_type(device);
  return !c10::impl::tls_is_dispatch_key_excluded(key) && recipe.op->hasKernelForDispatchKey(key);
}

bool calls_others_only(const c10::OperatorHandle& op, c10::Device device) {
  using Key = c10::DispatchKey;
  if (!op.hasKernelForDispatchKey(Key::CompositeImplicitAutograd)) return false;
  const Key backend = c10::computeDispatchKey(at::kFloat, at::kStrided, device);
  // With a kernel of its own but no derivative in PyTorch, that kernel calls what autograd derives. Where it does not,
  // its results are nobody's, and stored.
  if (op.hasKernelForDispatchKey(backend)) return !op.hasKernelForDispatchKey(Key::Autograd);
  return !op.hasKernelForDispatchKey(Key::CompositeExplicitAutograd);
}

const Recipe* recipe_of(const OperatorInfo* info) {
  if (info == nullptr || info->id >= kMostOperators) return nullptr;
  if (const Recipe* known = by_id[info->id].load(std::memory_order_acquire)) {
    return known->info == nullptr ? nullptr : known;
  }
  if (info->counted || is_allocation(info->name)) return make_recipe(*info);
  static const auto* idle = new Recipe();
  by_id[info->id].store(idle, std::memory_order_release);
  return nullptr;
}

}  // namespace

bool Recipe::find_composite(c10::Device device) const {
  const bool composite = calls_others_only(*op, device);
  composite_[static_cast<size_t>(device.type())].store(composite ? 1 : -1, std::memory_order_relaxed);
  return composite;
}

Recipe::Telling Recipe::tells_host(c10::ArrayRef<c10::IValue> inputs) const {
  if (!target.has_value()) return tells_number ? Telling::kPlainly : Telling::kNo;
  const c10::IValue& to = inputs[*target];
  const c10::IValue& from = inputs[to.isTensor() ? 1 : 0];
  if (!(to.isTensor() ? to.toTensor().is_cpu() : to.isDevice() && to.toDevice().is_cpu())) return Telling::kNo;
  const at::Tensor& source = from.toTensor();
  const bool converts = to.isTensor() ? to.toTensor().dtype() != source.dtype()
                                      : inputs[1].isInt() && inputs[1].toScalarType() != source.scalar_type();
  // The host converts, from a copy in order.
  const bool plain = converts ? source.is_contiguous() : source.is_non_overlapping_and_dense();
  return plain ? Telling::kPlainly : Telling::kGathered;
}

bool is_never_recorded(const c10::OperatorHandle& op) {
  using Key = c10::DispatchKey;
  if (!does_work(op) && !is_allocation(op.schema().name())) return true;
  return op.hasKernelForDispatchKey(Key::CompositeImplicitAutograd) && !op.hasKernelForDispatchKey(Key::Autograd) &&
         !op.hasKernelForDispatchKey(Key::CompositeExplicitAutograd);
}

const Recipe* find_recipe(const at::RecordFunction& frame) { return recipe_of(find_operator(frame)); }
// PyTorch's own operators stay, so that the address of a schema is enough to know one by; others may go, and another
// have its address.
const Recipe* find_recipe(const c10::OperatorHandle& op) {
  struct Known {
    const c10::FunctionSchema* schema;
    const Recipe* recipe;
  };
  constexpr size_t kSlots = 1024;
  thread_local std::array<Known, kSlots> known{};
  if (!op.hasSchema()) return nullptr;
  const c10::FunctionSchema& schema = op.schema();
  const auto address = reinterpret_cast<uintptr_t>(&schema);
  Known& slot = known[((address >> 4) ^ (address >> 14)) & (kSlots - 1)];
  if (slot.schema == &schema) return slot.recipe;
  const Recipe* recipe = recipe_of(find_operator(op));
  if (starts_with(schema.name(), "aten::")) slot = {&schema, recipe};
  return recipe;
}

bool is_transparent(const Recipe& recipe, c10::ArrayRef<c10::IValue> inputs, c10::Device device) {
  if (recipe.transparent || recipe.is_composite(device) || is_cast_for(recipe, device.type())) return true;
  for (const c10::IValue& value : inputs) {
    if (value.isTensor()) {
      if (value.toTensor().defined() && stands_for_another(value.toTensor())) return true;
    } else if (value.isList()) {
      bool stands = false;
      for_each_tensor(value, [&](const at::Tensor& tensor) { stands = stands || stands_for_another(tensor); });
      if (stands) return true;
    }
  }
  return false;
}

bool has_subclass(c10::ArrayRef<c10::IValue> inputs) {
  bool found = false;
  const auto look = [&](const at::Tensor& tensor) {
    found = found || tensor.unsafeGetTensorImpl()->key_set().has(c10::DispatchKey::Python);
  };
  for (const c10::IValue& value : inputs) {
    if (value.isTensor() && value.toTensor().defined()) {
      look(value.toTensor());
    } else if (value.isList()) {
      for_each_tensor(value, look);
    }
  }
  return found;
}

void set_secret_writes(const std::string& name, SecretWrite write) {
  const std::lock_guard<std::mutex> lock(making);
  secret_writes()[name] = std::move(write);
}

}  // namespace bayplan::recompute

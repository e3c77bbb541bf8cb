#include "session/reads.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <string_view>
#include <unordered_set>

#include "profiler/operators.h"
#include "profiler/storages.h"

namespace bayplan::swap {
namespace {

// Their results, or the sizes of these, are the host's to know.
const std::unordered_set<std::string_view> kReaders = {
    "aten::_local_scalar_dense", "aten::_unique2",           "aten::equal",      "aten::masked_select", "aten::nonzero",
    "aten::repeat_interleave",   "aten::unique_consecutive", "aten::unique_dim",
};

bool is_copy(std::string_view name) { return name == "aten::copy_"; }

bool lies_on(c10::Device device, const c10::IValue& value) {
  bool found = false;
  for_each_tensor(value, [&](const at::Tensor& tensor) { found = found || storage_on(device, tensor) != nullptr; });
  return found;
}

}  // namespace

bool reads_on_host(const at::RecordFunction& frame, c10::Device device) {
  const std::string_view name = frame.name();
  const auto inputs = frame.inputs();
  if (kReaders.count(name) > 0) {
    return std::any_of(inputs.begin(), inputs.end(), [&](const c10::IValue& each) { return lies_on(device, each); });
  }
  if (!is_copy(name) || inputs.size() < 2 || !inputs[0].isTensor() || !inputs[1].isTensor()) return false;
  return inputs[0].toTensor().is_cpu() && lies_on(device, inputs[1]);
}

double Gaps::end(uint32_t next, uint64_t bytes) const {
  return std::max<double>(next, busy_until_) + pace_.latency + pace_.per_byte * static_cast<double>(bytes);
}

// A read takes the operator that reads; what is left of the pause that runs counts from when the link is free.
bool Gaps::suits(uint32_t next, uint64_t bytes, uint32_t latest) const {
  const std::vector<uint32_t>& reads = pace_.reads;
  auto read = std::lower_bound(reads.begin(), reads.end(), next);
  if (read == reads.end() || end(next, bytes) <= *read) return true;
  const double takes = end(next, bytes) - std::max<double>(next, busy_until_);
  const double left = *read - std::max<double>(next, busy_until_);
  double longest = 0;
  for (; read != reads.end() && *read < latest; ++read) {
    const uint32_t until = std::next(read) == reads.end() ? latest : std::min(*std::next(read), latest);
    longest = std::max<double>(longest, until - std::min(until, *read + 1));
  }
  return longest < takes && left >= longest;
}

}  // namespace bayplan::swap

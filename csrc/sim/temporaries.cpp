#include "sim/temporaries.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "sim/device_memory.h"

namespace sim {
namespace {

constexpr int64_t kGranule = 512;  // Of both allocators.

thread_local Watch* tls_watch = nullptr;

int64_t size_of(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.numel() * static_cast<int64_t>(tensor.itemsize()) : 0;
}

// c: contiguous, d: dense in another order, s: with gaps or broadcast.
char layout_of(const at::Tensor& tensor) {
  if (tensor.is_contiguous()) return 'c';
  return tensor.is_non_overlapping_and_dense() ? 'd' : 's';
}

void describe(std::string& text, const at::Tensor& tensor) {
  if (!tensor.defined()) {
    text += '-';
    return;
  }
  if (tensor.device().is_cpu()) text += "host ";
  text += c10::toString(tensor.scalar_type());
  if (tensor.dim() == 0)
    text += '0';
  else
    text += layout_of(tensor);
}

void describe_list(std::string& text, const std::vector<at::Tensor>& tensors) {
  text += '[';
  if (!tensors.empty()) describe(text, tensors.front());
  text += ']';
}

std::vector<at::Tensor> defined_of(const c10::IValue& value) {
  std::vector<at::Tensor> found;
  if (value.isTensorList()) {
    found = value.toTensorVector();
  } else {
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector())
      if (tensor && tensor->defined()) found.push_back(*tensor);
  }
  return found;
}

void add(CallShape& call, const c10::IValue& value) {
  std::string& text = call.signature;
  if (value.isTensor()) {
    describe(text, value.toTensor());
    call.sizes.push_back(size_of(value.toTensor()));
  } else if (value.isTensorList() || value.isOptionalTensorList()) {
    const std::vector<at::Tensor> tensors = defined_of(value);
    describe_list(text, tensors);
    int64_t bytes = 0;
    for (const at::Tensor& tensor : tensors) bytes += size_of(tensor);
    call.sizes.push_back(bytes);
  } else if (value.isBool()) {
    text += value.toBool() ? '1' : '0';
  } else {
    return;
  }
  text += ' ';
}

size_t whole_blocks(int64_t bytes) { return static_cast<size_t>((bytes + kGranule - 1) / kGranule * kGranule); }

// By how many factors of e sizes differ, all together.
double distance(const std::vector<int64_t>& one, const std::vector<int64_t>& other) {
  if (one.size() != other.size()) return std::numeric_limits<double>::infinity();
  double far = 0;
  for (size_t i = 0; i < one.size(); ++i)
    far += std::abs(std::log1p(static_cast<double>(one[i])) - std::log1p(static_cast<double>(other[i])));
  return far;
}

}  // namespace

bool TemporaryRule::constant() const {
  return std::all_of(terms.begin(), terms.end(), [](const TemporaryTerm& term) { return term.size == kConstantTerm; });
}

size_t TemporaryRule::nearest(const std::vector<int64_t>& sizes) const {
  const auto found = std::min_element(exact.begin(), exact.end(), [&](const auto& one, const auto& other) {
    return distance(one.first, sizes) < distance(other.first, sizes);
  });
  return found == exact.end() ? 0 : found->second;
}

Temporaries& Temporaries::get() {
  static auto* temporaries = new Temporaries();
  return *temporaries;
}

CallShape Temporaries::shape_of(const OpInfo& info, c10::ArrayRef<c10::IValue> arguments) {
  CallShape call{std::string(info.name) + ": ", {}};
  const bool power = std::strcmp(info.name, "pow") == 0;
  for (const c10::IValue& value : arguments) {
    add(call, value);
    if (power && value.isScalar()) call.signature += std::to_string(value.toScalar().toDouble()) + ' ';
  }
  return call;
}

void Temporaries::add_results(CallShape& call, c10::ArrayRef<c10::IValue> results) {
  call.signature += "> ";
  for (const c10::IValue& value : results) add(call, value);
  call.signature.pop_back();
}

CallShape Temporaries::workspace_of(CallShape layer) {
  layer.signature = "workspace of " + layer.signature;
  return layer;
}

void Temporaries::set_rules(std::map<std::string, TemporaryRule> rules) {
  std::lock_guard<std::mutex> held(guard_);
  rules_ = std::move(rules);
}

size_t Temporaries::bytes(const CallShape& call) {
  std::lock_guard<std::mutex> held(guard_);
  const auto at = rules_.find(call.signature);
  if (at == rules_.end()) {
    ++unmeasured_[call.signature];
    return 0;
  }
  const auto exact = at->second.exact.find(call.sizes);
  if (exact != at->second.exact.end()) return exact->second;
  if (!at->second.exact.empty()) {
    ++estimated_[call.signature];
    if (at->second.constant()) return at->second.nearest(call.sizes);
  }
  size_t bytes = 0;
  for (const TemporaryTerm& term : at->second.terms) {
    const int64_t size = term.size == kConstantTerm ? 1 : term.size < call.sizes.size() ? call.sizes[term.size] : 0;
    bytes += whole_blocks(static_cast<int64_t>(static_cast<__int128>(size) * term.factor / term.divisor));
  }
  return bytes;
}

std::map<std::string, uint64_t> Temporaries::unmeasured() {
  std::lock_guard<std::mutex> held(guard_);
  return unmeasured_;
}

std::map<std::string, uint64_t> Temporaries::estimated() {
  std::lock_guard<std::mutex> held(guard_);
  return estimated_;
}

void Temporaries::set_measuring(bool on) { measuring_ = on; }

void Temporaries::note(CallShape call, size_t bytes) {
  std::lock_guard<std::mutex> held(guard_);
  measured_.push_back({std::move(call), bytes});
}

std::vector<MeasuredTemporaries> Temporaries::take_measured() {
  std::lock_guard<std::mutex> held(guard_);
  return std::exchange(measured_, {});
}

void Temporaries::reset() {
  std::lock_guard<std::mutex> held(guard_);
  unmeasured_.clear();
  estimated_.clear();
}

Watch::Watch(bool watches) : outer_(tls_watch) {
  if (watches) tls_watch = this;
}
Watch::~Watch() { tls_watch = outer_; }

void Watch::forget_dead(const void* reborn) {
  for (auto at = blocks_.begin(); at != blocks_.end();) {
    if (at->first != reborn && DeviceMemory::find(at->first)) {
      ++at;
      continue;
    }
    now_ -= at->second;
    at = blocks_.erase(at);
  }
}

void Watch::allocated(const void* address, size_t bytes) {
  Watch* watch = tls_watch;
  if (!watch || !address) return;
  watch->forget_dead(address);
  const size_t taken = whole_blocks(static_cast<int64_t>(bytes));
  watch->blocks_[address] = taken;
  watch->now_ += taken;
  watch->peak_ = std::max(watch->peak_, watch->now_);
}

size_t Watch::excess() {
  forget_dead(nullptr);
  return peak_ - now_;
}

}  // namespace sim

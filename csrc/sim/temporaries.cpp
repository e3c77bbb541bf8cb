// One file: rules for what kernels take, and the watch that measures it, are checked against each other.
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

constexpr int64_t kBlock = 512;  // Of both allocators.

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

size_t whole_blocks(int64_t bytes) { return static_cast<size_t>((bytes + kBlock - 1) / kBlock * kBlock); }

// By how many factors of e sizes differ, all together.
double distance(const std::vector<int64_t>& one, const std::vector<int64_t>& other) {
  if (one.size() != other.size()) return std::numeric_limits<double>::infinity();
  double far = 0;
  for (size_t i = 0; i < one.size(); ++i)
    far += std::abs(std::log1p(static_cast<double>(one[i])) - std::log1p(static_cast<double>(other[i])));
  return far;
}

// Where the operands of a matrix product are among its arguments, if it is one.
std::optional<size_t> left_of_product(const char* name) {
  for (const char* product : {"mm", "bmm"})
    if (std::strcmp(name, product) == 0) return 0;
  for (const char* product : {"addmm", "baddbmm"})
    if (std::strcmp(name, product) == 0) return 1;
  return std::nullopt;
}

std::optional<ProductShape> product_of(const char* name, c10::ArrayRef<c10::IValue> arguments) {
  const std::optional<size_t> left = left_of_product(name);
  if (!left || arguments.size() < *left + 2 || !arguments[*left].isTensor()) return std::nullopt;
  const at::Tensor &one = arguments[*left].toTensor(), &other = arguments[*left + 1].toTensor();
  if (one.dim() < 2 || other.dim() != one.dim()) return std::nullopt;
  return ProductShape{one.size(-2), one.size(-1), other.size(-1), one.stride(-1) != 1 && one.stride(-2) == 1};
}

// Whether a signature is of a product in bfloat16.
bool halves(const std::string& signature) {
  const size_t colon = signature.find(": ");
  return left_of_product(signature.substr(0, colon).c_str()) && signature.compare(colon + 2, 8, "BFloat16") == 0;
}

// A part of many rows: as many of 64 to 256 as divide them, else equal parts of at most 256.
int64_t block_of_rows(int64_t rows) {
  constexpr int64_t kMost = 256, kLeast = 64;
  if (rows <= kMost) return rows;
  for (int64_t block = kMost; block >= kLeast; --block)
    if (rows % block == 0) return block;
  const int64_t parts = (rows + kMost - 1) / kMost;
  return (rows + parts - 1) / parts;
}

// What the terms say.
size_t sum_of(const TemporaryRule& rule, const std::vector<int64_t>& sizes) {
  size_t bytes = 0;
  for (const TemporaryTerm& term : rule.terms) {
    const int64_t size = term.size == kConstantTerm ? 1 : term.size < sizes.size() ? sizes[term.size] : 0;
    bytes += whole_blocks(static_cast<int64_t>(static_cast<__int128>(size) * term.factor / term.divisor));
  }
  return bytes;
}

// The blocks of a product that was not measured, by how far off those of the nearest measured one are.
size_t blocks_like(const TemporaryRule& rule, const CallShape& call) {
  const int64_t made = call.sizes[call.sizes.size() - 4] / static_cast<int64_t>(sizeof(c10::BFloat16));
  const int64_t blocks = blocks_of(*call.product);
  // Of measured batches nobody knows how each product lay.
  if (made != call.product->rows * call.product->columns) return whole_blocks(blocks);
  const auto& [sizes, took] = *rule.nearest(call.sizes);
  const size_t last = sizes.size() - 1;
  const int64_t near = blocks_of({sizes[last - 2], sizes[last - 1], sizes[last], call.product->turned});
  if (took == 0 || std::abs(static_cast<int64_t>(took) - near) < kBlock) return whole_blocks(blocks);
  return whole_blocks(static_cast<int64_t>(static_cast<__int128>(blocks) * took / near));
}

}  // namespace

int64_t blocks_of(const ProductShape& product) {
  constexpr int64_t kColumns = 64, kInner = 512, kLine = 32, kHalf = 2, kSingle = 4, kFrame = 1024, kEdge = 128;
  auto [rows, inner, columns, turned] = product;
  if (columns == 1) std::swap(rows, columns);  // oneDNN then computes the transposed product.
  const bool copies = turned && rows > 1;
  const bool doubled = !copies && rows > 1 && product.columns > 1 && inner >= 2 * kInner;
  const int64_t deep = (std::min(inner, doubled ? 2 * kInner : kInner) + kLine - 1) / kLine * kLine;
  const int64_t high = block_of_rows(rows);
  int64_t bytes = kFrame + kHalf * kColumns * deep + kSingle * high * std::min(columns, kColumns);
  if (copies) bytes += kHalf * high * (deep % kInner == 0 ? deep + kLine : deep) + kEdge;
  return bytes;
}

bool TemporaryRule::constant() const {
  return std::all_of(terms.begin(), terms.end(), [](const TemporaryTerm& term) { return term.size == kConstantTerm; });
}

const std::pair<const std::vector<int64_t>, size_t>* TemporaryRule::nearest(const std::vector<int64_t>& sizes) const {
  const auto found = std::min_element(exact.begin(), exact.end(), [&](const auto& one, const auto& other) {
    return distance(one.first, sizes) < distance(other.first, sizes);
  });
  return found == exact.end() ? nullptr : &*found;
}

Temporaries& Temporaries::get() {
  static auto* temporaries = new Temporaries();
  return *temporaries;
}

CallShape Temporaries::shape_of(const OpInfo& info, c10::ArrayRef<c10::IValue> arguments) {
  CallShape call{std::string(info.name) + ": ", {}, product_of(info.name, arguments)};
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
  if (call.product)
    for (const int64_t number : {call.product->rows, call.product->inner, call.product->columns})
      call.sizes.push_back(number);
}

void Temporaries::set_rules(std::map<std::string, TemporaryRule> rules) {
  std::lock_guard<std::mutex> held(guard_);
  rules_ = std::move(rules);
}

std::optional<Temporaries::Found> Temporaries::find(const CallShape& call) const {
  const auto at = rules_.find(call.signature);
  if (at == rules_.end()) return std::nullopt;
  const TemporaryRule& rule = at->second;
  const auto exact = rule.exact.find(call.sizes);
  if (exact != rule.exact.end()) return Found{exact->second, false};
  const bool estimated = !rule.exact.empty();
  if (estimated) {
    if (call.product && halves(call.signature)) return Found{blocks_like(rule, call), true};
    if (rule.constant()) return Found{rule.nearest(call.sizes)->second, true};
  }
  const size_t bytes = sum_of(rule, call.sizes);
  const auto* nearest = rule.nearest(call.sizes);
  const size_t there = nearest ? sum_of(rule, nearest->first) : 0;
  if (there == 0) return Found{bytes, estimated};
  // As far off as it is where it was measured.
  const __int128 scaled = static_cast<__int128>(bytes) * nearest->second / there;
  return Found{whole_blocks(static_cast<int64_t>(scaled)), estimated};
}

size_t Temporaries::bytes(const CallShape& call) {
  std::lock_guard<std::mutex> held(guard_);
  const std::optional<Found> found = find(call);
  if (!found)
    ++unmeasured_[call.signature];
  else if (found->estimated)
    ++estimated_[call.signature];
  return found ? found->bytes : 0;
}

std::optional<size_t> Temporaries::told(const CallShape& call) {
  std::lock_guard<std::mutex> held(guard_);
  const std::optional<Found> found = find(call);
  return found ? std::optional(found->bytes) : std::nullopt;
}

bool Temporaries::measured_of(const CallShape& call) {
  std::lock_guard<std::mutex> held(guard_);
  const auto at = rules_.find(call.signature);
  return at != rules_.end() && at->second.exact.count(call.sizes) > 0;
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

Watch::Watch(bool watches, bool on_host) : outer_(tls_watch), on_host_(on_host) {
  if (watches) tls_watch = this;
}
Watch::~Watch() { tls_watch = outer_; }

bool Watch::is_on_host() { return tls_watch && tls_watch->on_host_; }

void Watch::freed_on_host(const void* address) {
  const auto at = tls_watch->blocks_.find(address);
  if (at == tls_watch->blocks_.end()) return;
  tls_watch->now_ -= at->second;
  tls_watch->blocks_.erase(at);
}

void Watch::forget_dead(const void* reborn) {
  if (on_host_) return;
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

// What an operator is to Bayplan, and which operator a thread is in. The profiler and the swap executor both include
// this header, so that "operator 17 of the step" means the same to the one that plans and to the one that executes.
//
// A *counted operator* is the outermost call on its thread, through PyTorch's dispatcher, of an operator that does work
// (reads, writes or creates data). Frames that do none are transparent: they are not counted and what they call is.
// `reshape` of a contiguous tensor therefore counts as nothing, and `reshape` of a transposed one as `aten::clone`.
// Operators on jagged nested tensors are transparent, too, where the observer asked for inputs: these have no storage,
// and Python takes the operators apart into such as work on what they hold.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <string>
#include <vector>

namespace bayplan {

// How to count the arithmetic of an operator; see flops.h.
enum class FlopRule : uint8_t {
  kNone,
  kProduct,
  kAddedProduct,
  kLinear,
  kConvolution,
  kConvolutionBackward,
  kAttention,
  kAttentionBackward,
};

// What is known of an operator from its schema alone. One value for each operator and overload, alive until exit.
struct OperatorInfo {
  uint32_t id;        // dense, by first appearance in this process
  std::string name;   // "aten::add.Tensor"
  bool counted;       // does work: not a view, a metadata query or a bare allocation
  bool communicates;  // a collective or a point-to-point transfer
  FlopRule flop_rule;
  std::vector<bool> writes;  // by argument: the schema says that it is written to
};

// The operator of this frame; null where the frame is no dispatcher operator (autograd's and the user's own ranges).
const OperatorInfo* find_operator(const at::RecordFunction& frame);

// The operator with that full name ("aten::add.Tensor"), seen or not; null where no such operator is registered.
const OperatorInfo* find_operator(const std::string& name);

// Whether an argument is a nested tensor that Python takes apart (`torch.jagged`).
bool has_jagged(const at::RecordFunction& frame);

// Whether a frame of that name is a region of torch.compile, whose kernels never pass the dispatcher.
bool is_compiled_region(const char* name);

// The names of all operators seen so far; the index is the id.
std::vector<std::string> operator_names();

// The dense tensors that a sparse one is made of; none of a dense one.
c10::SmallVector<at::Tensor, 3> sparse_parts(const at::Tensor& tensor);

// Calls `visit` for a tensor, if it is defined, and for those that it is made of.
template <typename Visit>
void visit_with_parts(const at::Tensor& tensor, const Visit& visit) {
  if (!tensor.defined()) return;
  visit(tensor);
  if (tensor.unsafeGetTensorImpl()->has_storage()) return;
  for (const at::Tensor& part : sparse_parts(tensor)) visit(part);
}

// Calls `visit(tensor)` for every defined tensor of an argument or result, in flattened order: Tensor, Tensor[] and
// Tensor?[], each followed by the parts of a sparse one. This order, less the tensors for which `storage_on`
// (storages.h) is null, is that of an operator's inputs.
template <typename Visit>
void for_each_tensor(const c10::IValue& value, const Visit& visit) {
  if (value.isTensor()) {
    visit_with_parts(value.toTensor(), visit);
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorList()) visit_with_parts(tensor, visit);
  } else if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) for_each_tensor(element, visit);
  }
}

// Where a frame stands: in no counted operator, at the boundary of one, or inside one.
enum class Frame : uint8_t { kTransparent, kOutermost, kNested };

// What surrounds an operator. Outside of both ranges an operator is the forward pass's, or follows the backward pass:
// only the whole step tells which.
enum class Range : uint8_t { kOutside, kBackward, kOptimizer };

// Follows the frames of one thread. Each observer keeps its own, `thread_local`, and hands it every frame of the scopes
// that it subscribed to: FUNCTION always; BACKWARD_FUNCTION and USER_SCOPE too if it asks for `range()`.
class FrameTracker {
 public:
  // To be called from the start callback. `kOutermost`: a counted operator begins here.
  Frame enter(const at::RecordFunction& frame);

  // To be called from the end callback, also when the operator threw. `kOutermost`: the counted operator ends here.
  Frame leave(const at::RecordFunction& frame);

  // The counted operator that the thread is in, or null.
  const OperatorInfo* current() const { return outermost_ != nullptr ? operator_ : nullptr; }

  // Whether the frame lies within the counted operator that the thread is in; nothing to do for most observers.
  bool within(const at::RecordFunction& frame) const { return outermost_ != nullptr && outermost_ != &frame; }

  // The innermost range: an optimizer may run inside the backward pass, and a backward pass inside an optimizer's step.
  Range range() const {
    if (backward_ > (optimizers_.empty() ? 0 : optimizers_.back())) return Range::kBackward;
    return optimizers_.empty() ? Range::kOutside : Range::kOptimizer;
  }

  // Whether autograd is storing a gradient into a leaf's `.grad`.
  bool in_accumulation() const { return accumulation_ > 0; }

 private:
  // Opens (+1) or closes (−1) the range that a frame outside of counted operators stands for; false if it is none.
  bool move_range(const at::RecordFunction& frame, int step);

  const at::RecordFunction* outermost_ = nullptr;  // its address is its identity while it lives
  const OperatorInfo* operator_ = nullptr;
  int backward_ = 0;
  int accumulation_ = 0;
  std::vector<int> optimizers_;  // for each optimizer's step that is open, the depth of backward ranges around it
};

}  // namespace bayplan
